//! What a command is doing, on standard error: plain lines, so that they read well in a log too.

use std::{sync::OnceLock, time::Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// One line, with the seconds since the first one.
pub(crate) fn line(text: &str) {
    let start = START.get_or_init(Instant::now);
    eprintln!("[{:5.1} s] {text}", start.elapsed().as_secs_f64());
}
