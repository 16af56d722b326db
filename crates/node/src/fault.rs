//! Where the process ends as if killed: for tests of what the next start makes of a half done job. Off unless it is asked
//! for, and then it is the real program that dies.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Variable that asks for it, for example `takeover:7`: die instead of doing the seventh step of a bridge's take-over.
pub const VARIABLE: &str = "OVNKUBE_KILL_BEFORE";

/// A job of many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// A network card becomes the uplink of a bridge.
    Takeover,
    /// The card gets everything back.
    Undo,
}

/// One step of a job before which the process dies.
#[derive(Debug, Clone)]
pub struct KillPoint {
    job: Job,
    /// Steps that are still done.
    left: Arc<AtomicU32>,
}

impl KillPoint {
    /// Called before each step of `job`; does not return from the one that was asked for.
    pub(crate) fn before_step_of(&self, job: Job) {
        if self.is_due(job) {
            host::process::kill_self();
        }
    }

    fn is_due(&self, job: Job) -> bool {
        job == self.job
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                == Ok(1)
    }
}

impl FromStr for KillPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<KillPoint, String> {
        let parsed = text.split_once(':').and_then(|(job, step)| {
            let job = match job {
                "takeover" => Job::Takeover,
                "undo" => Job::Undo,
                _ => return None,
            };
            Some((job, step.parse().ok().filter(|step| *step > 0)?))
        });
        let (job, step) = parsed.ok_or_else(|| {
            format!("{VARIABLE} is {text:?}; it must be takeover or undo, a colon and a step from 1, or not be set")
        })?;
        Ok(KillPoint { job, left: Arc::new(AtomicU32::new(step)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_once_at_the_step_that_was_named() {
        let point: KillPoint = "takeover:2".parse().unwrap();
        let due = [Job::Takeover, Job::Undo, Job::Takeover, Job::Takeover].map(|job| point.is_due(job));
        assert_eq!(due, [false, false, true, false]);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "takeover", "takeover:0", "takeover:x", "reboot:1"] {
            assert!(text.parse::<KillPoint>().unwrap_err().contains(VARIABLE), "{text}");
        }
    }
}
