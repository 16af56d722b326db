//! From tracing's events to lines in the sink.

use super::{
    file::RotatedFile,
    level::Verbosity,
    line::{Fields, line},
};
use std::{
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};
use tracing::{
    Event, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

/// Where lines go.
pub(crate) enum Sink {
    Stderr,
    File(Box<Mutex<RotatedFile>>),
}

impl Sink {
    /// A line that cannot be written is lost; the process must not stop or block for its log.
    fn write(&self, line: &str, now: SystemTime) {
        match self {
            Self::Stderr => {
                let _ = std::io::stderr().lock().write_all(line.as_bytes());
            }
            Self::File(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                if file.write(line.as_bytes(), now).is_err() {
                    // On a full disk the container's log is the better place.
                    let _ = std::io::stderr().lock().write_all(line.as_bytes());
                }
            }
        }
    }
}

pub(crate) struct LineLayer {
    sink: Sink,
    verbosity: Arc<Verbosity>,
    pid: u32,
}

impl LineLayer {
    pub(crate) fn new(sink: Sink, verbosity: Arc<Verbosity>) -> Self {
        Self { sink, verbosity, pid: std::process::id() }
    }
}

/// Fields of a span, as text.
struct SpanText(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LineLayer {
    // The answer is cached by tracing until the level changes.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.verbosity.writes(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.verbosity.writes(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.verbosity.most())
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(SpanText(fields.pairs));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(text) = span.extensions_mut().get_mut::<SpanText>()
        {
            let mut fields = Fields::default();
            values.record(&mut fields);
            text.0.push_str(&fields.pairs);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut spans = String::new();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(text) = span.extensions().get::<SpanText>() {
                spans.push_str(&text.0);
            }
        }
        let now = SystemTime::now();
        self.sink.write(&line(now, self.pid, event.metadata(), &fields, &spans), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Rotation;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = RotatedFile::open(&path, Rotation::default()).unwrap();
        let layer = LineLayer::new(Sink::File(Box::new(file.into())), Arc::new(Verbosity::new(4)));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let error = std::io::Error::other("disk full");
            tracing::info!(pod = "ns/a", took = ?std::time::Duration::from_millis(12), n = 3, "pod attached");
            let span = tracing::info_span!("add", sandbox = "abc", late = tracing::field::Empty);
            span.in_scope(|| {
                span.record("late", "x y");
                tracing::error!(error = &error as &dyn std::error::Error, "two\nlines \x1b[1m",);
            });
            tracing::warn!(empty = "", quote = "a\"b", r#type = "t");
            tracing::info!(big = "ä".repeat(20_000));
        });
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        let (head, rest) = lines[0].split_once("] ").unwrap();
        assert_eq!(rest, "pod attached pod=ns/a took=12ms n=3");
        assert!(head.starts_with('I') && head.contains(" layer.rs:"), "{head}");
        assert_eq!(head.split_whitespace().nth(2), Some(&*std::process::id().to_string()));
        assert!(
            lines[1].ends_with("] two\\nlines \\u{1b}[1m error=\"disk full\" sandbox=abc late=\"x y\""),
            "{}",
            lines[1]
        );
        assert!(lines[1].starts_with('E'));
        assert!(lines[2].ends_with("]  empty=\"\" quote=\"a\\\"b\" type=t"), "{}", lines[2]);
        assert!(lines[3].len() < 17_000 && lines[3].ends_with('…'));
    }
}
