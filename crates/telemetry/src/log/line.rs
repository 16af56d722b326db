//! One event as one line: `I1129 20:27:01.123456    4711 server.rs:88] pod attached pod=ns/name took=12ms`.
//!
//! The head is that of Kubernetes' components, so that their tools read it; the time is UTC.

use crate::clock::Civil;
use std::{
    error::Error,
    fmt::{self, Debug, Write},
    time::SystemTime,
};
use tracing::{
    Level, Metadata,
    field::{Field, Visit},
};

/// Collects fields as ` key=value`, the message apart.
#[derive(Default)]
pub(crate) struct Fields {
    pub(crate) message: String,
    pub(crate) pairs: String,
}

/// Bytes of one field's value that are written; the rest of a larger one is cut.
const LONGEST: usize = 16 * 1024;

impl Fields {
    fn put(&mut self, field: &Field, value: &dyn fmt::Display) {
        // Writing to a String cannot fail.
        if field.name() == "message" {
            let _ = write!(Escaped(&mut self.message), "{value}");
            return;
        }
        let start = self.pairs.len();
        let _ = write!(self.pairs, " {}=", field.name().trim_start_matches("r#"));
        let value_start = self.pairs.len();
        let _ = write!(Escaped(&mut self.pairs), "{value}");
        cut(&mut self.pairs, value_start + LONGEST);
        let text = &self.pairs[value_start..];
        if text.is_empty() || text.contains([' ', '"', '=']) {
            let quoted = format!("\"{}\"", text.replace('"', "\\\""));
            self.pairs.truncate(value_start);
            self.pairs.push_str(&quoted);
        }
        debug_assert!(self.pairs.len() > start);
    }
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let at = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(at);
        text.push('…');
    }
}

/// Keeps one event on one line and control characters out of terminals.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for c in s.chars() {
            match c {
                '\n' => self.0.push_str("\\n"),
                c if c.is_control() => write!(self.0, "{}", c.escape_default())?,
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

struct Shown<'a>(&'a dyn Debug);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut next = self.0.source();
        while let Some(error) = next {
            // Many errors print their source already.
            let cause = error.to_string();
            if !text.contains(&cause) {
                let _ = write!(text, ": {cause}");
            }
            next = error.source();
        }
        f.write_str(&text)
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, &value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, &Chain(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, &Shown(value));
    }
}

/// The whole line with its end.
pub(crate) fn line(
    now: SystemTime,
    pid: u32,
    metadata: &Metadata<'_>,
    fields: &Fields,
    spans: &str,
) -> String {
    let letter = match *metadata.level() {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        Level::INFO => 'I',
        Level::DEBUG => 'D',
        Level::TRACE => 'T',
    };
    let c = Civil::from(now);
    let file = metadata.file().and_then(|f| f.rsplit('/').next()).unwrap_or("?");
    let mut line = format!(
        "{letter}{:02}{:02} {:02}:{:02}:{:02}.{:06} {pid:>7} {file}:{}] ",
        c.month,
        c.day,
        c.hour,
        c.minute,
        c.second,
        c.micros,
        metadata.line().unwrap_or(0),
    );
    line.push_str(&fields.message);
    cut(&mut line, 4 * LONGEST);
    line.push_str(&fields.pairs);
    line.push_str(spans);
    line.push('\n');
    line
}
