//! How far a long computation is, for a person who waits.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line on the terminal that is written over; nothing in the first second, and nothing where nobody reads it.
pub(super) struct Progress {
    what: &'static str,
    started: Instant,
    told: Option<Instant>,
    terminal: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str) -> Progress {
        Progress { what, started: Instant::now(), told: None, terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn tell(&mut self, done: usize, all: usize) {
        let due = self.told.unwrap_or(self.started + Duration::from_millis(900)).elapsed();
        if self.terminal
            && self.started.elapsed() > Duration::from_secs(1)
            && due > Duration::from_millis(100)
        {
            self.told = Some(Instant::now());
            let _ = write!(std::io::stderr(), "\r{} {done} of {all} groups of pods …", self.what);
        }
    }

    pub(super) fn end(&self) {
        if self.told.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
