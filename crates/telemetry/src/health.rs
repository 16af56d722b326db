//! Named checks of liveness and readiness.
//!
//! Readiness tests the working path: a role registers a check before it starts, so that the process is not ready while the
//! role comes up, and lets it pass only while pods can be served.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

/// Longest time one probe may take before it counts as failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

type ProbeFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
type Probe = Arc<dyn Fn() -> ProbeFuture + Send + Sync>;

#[derive(Clone)]
enum Source {
    State(Arc<Mutex<Result<(), String>>>),
    Probe(Probe),
}

/// What a check is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Live,
    Ready,
}

type Entry = (For, &'static str, Source);

/// All checks of the process; clones share them.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<Vec<Entry>>>,
    terminating: Arc<Mutex<Option<SystemTime>>>,
}

/// A check whose outcome its owner sets.
#[derive(Clone)]
pub struct Check(Arc<Mutex<Result<(), String>>>);

impl Check {
    /// It works.
    pub fn pass(&self) {
        *lock(&self.0) = Ok(());
    }

    /// It does not, and why, for operators.
    pub fn fail(&self, reason: impl Into<String>) {
        *lock(&self.0) = Err(reason.into());
    }
}

/// Outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Name of the check.
    pub name: &'static str,
    /// Ok, or what is wrong.
    pub result: Result<(), String>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    /// A readiness check that fails with "starting" until its owner sets it.
    pub fn ready(&self, name: &'static str) -> Check {
        let state = Arc::new(Mutex::new(Err("starting".to_owned())));
        self.put(For::Ready, name, Source::State(state.clone()));
        Check(state)
    }

    /// A readiness check that is tried at each request; after two seconds it counts as failed.
    pub fn ready_probe<F>(&self, name: &'static str, probe: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.put(For::Ready, name, Source::Probe(Arc::new(move || Box::pin(probe()))));
    }

    /// A liveness check that is tried at each request. Fail it only where a restart would help.
    pub fn live_probe<F>(&self, name: &'static str, probe: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.put(For::Live, name, Source::Probe(Arc::new(move || Box::pin(probe()))));
    }

    /// Our pod is being deleted (or no longer); the node's health server tells load balancers.
    pub fn set_terminating(&self, terminating: bool) {
        let mut since = lock(&self.terminating);
        match (terminating, *since) {
            (true, None) => *since = Some(SystemTime::now()),
            (false, _) => *since = None,
            (true, Some(_)) => {}
        }
    }

    /// Since when our pod is being deleted.
    pub(crate) fn terminating_since(&self) -> Option<SystemTime> {
        *lock(&self.terminating)
    }

    fn put(&self, purpose: For, name: &'static str, source: Source) {
        let mut checks = lock(&self.checks);
        // A role that starts again brings its check again.
        checks.retain(|(p, n, _)| (*p, *n) != (purpose, name));
        checks.push((purpose, name, source));
    }

    /// Outcomes of all liveness checks.
    pub async fn liveness(&self) -> Vec<Outcome> {
        self.run(For::Live, PROBE_TIMEOUT).await
    }

    /// Outcomes of all readiness checks. Before any role brought one the process is starting, not ready.
    pub async fn readiness(&self) -> Vec<Outcome> {
        let outcomes = self.run(For::Ready, PROBE_TIMEOUT).await;
        if outcomes.is_empty() {
            return vec![Outcome { name: "roles", result: Err("starting".to_owned()) }];
        }
        outcomes
    }

    async fn run(&self, purpose: For, timeout: Duration) -> Vec<Outcome> {
        let checks: Vec<_> = lock(&self.checks).iter().filter(|(p, ..)| *p == purpose).cloned().collect();
        // All at once: a hanging probe must not hold up the others.
        let running: Vec<_> = checks
            .into_iter()
            .map(|(_, name, source)| match source {
                Source::State(state) => (name, Err(lock(&state).clone())),
                Source::Probe(probe) => (name, Ok(tokio::spawn(tokio::time::timeout(timeout, probe())))),
            })
            .collect();
        let mut outcomes = Vec::with_capacity(running.len());
        for (name, started) in running {
            let result = match started {
                Err(state) => state,
                Ok(task) => match task.await {
                    Ok(Ok(result)) => result,
                    Ok(Err(_)) => Err(format!("no answer within {timeout:?}")),
                    Err(_) => Err("the check itself failed".to_owned()),
                },
            };
            outcomes.push(Outcome { name, result });
        }
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(outcomes: &[Outcome]) -> Vec<(&str, &str)> {
        outcomes.iter().filter_map(|o| o.result.as_ref().err().map(|e| (o.name, e.as_str()))).collect()
    }

    #[tokio::test]
    async fn checks_have_names_and_reasons() {
        let health = Health::default();
        assert_eq!(failed(&health.readiness().await), [("roles", "starting")]);
        assert!(health.liveness().await.is_empty());
        let nb = health.ready("nb");
        health.ready_probe("cni", || async { Ok(()) });
        health.ready_probe("hang", std::future::pending);
        health.ready_probe("panic", || async { panic!("boom") });
        health.live_probe("loop", || async { Err("stuck".to_owned()) });
        assert_eq!(
            failed(&health.run(For::Ready, Duration::from_millis(50)).await),
            [("nb", "starting"), ("hang", "no answer within 50ms"), ("panic", "the check itself failed")]
        );
        assert_eq!(failed(&health.liveness().await), [("loop", "stuck")]);
        health.ready_probe("hang", || async { Ok(()) });
        nb.pass();
        assert_eq!(failed(&health.readiness().await), [("panic", "the check itself failed")]);
        nb.fail("not connected");
        assert_eq!(failed(&health.readiness().await)[0], ("nb", "not connected"));
        // The same name replaces.
        let again = health.ready("nb");
        again.pass();
        assert_eq!(health.readiness().await.iter().filter(|o| o.name == "nb").count(), 1);
    }
}
