//! The log: one line an event, levels as the reference's, to standard error or a rotated file.

mod file;
mod layer;
mod level;
mod line;

use file::RotatedFile;
pub use file::Rotation;
use layer::{LineLayer, Sink};
use level::Verbosity;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tracing_subscriber::layer::SubscriberExt;

/// How and where to log.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// 1 and 2 errors, 3 warnings, 4 information, 5 debugging of our own code, 6 and more everything.
    pub level: u8,
    /// A file instead of standard error.
    pub file: Option<(PathBuf, Rotation)>,
}

/// The log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log file cannot be opened.
    #[error("cannot open the log file {}: {source}; correct --logfile or make its directory writable", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another subscriber is there already.
    #[error("the log is set up already in this process")]
    Installed,
}

/// Handle on the running log.
#[derive(Clone)]
pub struct LogControl {
    verbosity: Arc<Verbosity>,
    file: Option<PathBuf>,
}

/// Sets up the log of the whole process.
///
/// # Errors
/// If the file cannot be opened, or the process logs already.
pub fn init(settings: &LogSettings) -> Result<LogControl, LogError> {
    let (control, subscriber) = build(settings)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Installed)?;
    Ok(control)
}

fn build(
    settings: &LogSettings,
) -> Result<(LogControl, impl tracing::Subscriber + Send + Sync + use<>), LogError> {
    let sink = match &settings.file {
        None => Sink::Stderr,
        Some((path, rotation)) => {
            let file = RotatedFile::open(path, *rotation)
                .map_err(|source| LogError::Open { path: path.clone(), source })?;
            Sink::File(Box::new(file.into()))
        }
    };
    let verbosity = Arc::new(Verbosity::new(settings.level));
    let layer = LineLayer::new(sink, verbosity.clone());
    let control = LogControl { verbosity, file: settings.file.as_ref().map(|(path, _)| path.clone()) };
    Ok((control, tracing_subscriber::registry().with(layer)))
}

impl LogControl {
    /// A handle that controls nothing, for tests and programs without a log.
    pub fn detached() -> Self {
        Self { verbosity: Arc::new(Verbosity::new(4)), file: None }
    }

    /// The level now.
    pub fn level(&self) -> u8 {
        self.verbosity.get()
    }

    /// Changes the level at once, for all threads.
    pub fn set_level(&self, level: u8) {
        self.verbosity.set(level);
        tracing::callsite::rebuild_interest_cache();
    }

    /// The log file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_can_change_while_running() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let settings = LogSettings { level: 4, file: Some((path.clone(), Rotation::default())) };
        let (control, subscriber) = build(&settings).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            for (level, word) in [(4, "four"), (5, "five"), (3, "three"), (1, "one"), (9, "nine")] {
                control.set_level(level);
                tracing::trace!("trace {word}");
                tracing::debug!("debug {word}");
                tracing::info!("info {word}");
                tracing::warn!("warn {word}");
                tracing::error!("error {word}");
                tracing::debug!(target: "hyper::proto", "foreign debug {word}");
            }
        });
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().filter_map(|l| l.split_once("] ").map(|(_, m)| m)).collect();
        assert_eq!(
            lines,
            [
                "info four",
                "warn four",
                "error four",
                "debug five",
                "info five",
                "warn five",
                "error five",
                "warn three",
                "error three",
                "error one",
                "trace nine",
                "debug nine",
                "info nine",
                "warn nine",
                "error nine",
                "foreign debug nine",
            ]
        );
        assert_eq!(control.level(), 9);
    }
}
