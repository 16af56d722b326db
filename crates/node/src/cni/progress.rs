//! Where an ADD stands: for the text of its failure and for the stage durations.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use super::observe::{Observer, Stage};

/// The step an ADD is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Queued,
    Annotation,
    Plug,
    Installed,
}

/// Shared between the steps and whoever gives up on them.
pub(crate) struct Progress<'a> {
    observer: &'a dyn Observer,
    inner: Mutex<(Step, Instant)>,
}

// === impl Progress ===

impl<'a> Progress<'a> {
    pub(crate) fn new(observer: &'a dyn Observer) -> Progress<'a> {
        Progress { observer, inner: Mutex::new((Step::Queued, Instant::now())) }
    }

    pub(crate) fn step(&self) -> Step {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// A stage is over; the ADD is at `next` now.
    pub(crate) fn done(&self, stage: Stage, next: Step) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        self.observer.stage(stage, now.duration_since(inner.1));
        *inner = (next, now);
    }
}
