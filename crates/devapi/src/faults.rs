//! Faults a test or bench can switch on: slow or failing requests, lost and expired watches.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::{error::ApiError, store::Store};

/// Which requests a fault hits. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    verb: Option<String>,
    resource: Option<String>,
    name: Option<String>,
}

impl Matcher {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests with this verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Requests for this resource: `pods`, or with its subresource `pods/status`; `pods` covers both.
    pub fn resource(mut self, resource: &str) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Requests for the object of this name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    fn matches(&self, verb: &str, resource: &str, name: &str) -> bool {
        let plain = resource.split('/').next().unwrap_or(resource);
        self.verb.as_deref().is_none_or(|v| v == verb)
            && self.resource.as_deref().is_none_or(|r| r == resource || r == plain)
            && self.name.as_deref().is_none_or(|n| n == name)
    }
}

/// How a request is made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 500 InternalError.
    Internal,
    /// 409 Conflict, as for a stale resourceVersion.
    Conflict,
    /// 410 Expired, as for a resourceVersion that is too old.
    Gone,
    /// 429 TooManyRequests with Retry-After 1.
    TooManyRequests,
    /// 503 ServiceUnavailable.
    Unavailable,
}

impl Failure {
    fn error(self, resource: &str, name: &str) -> ApiError {
        match self {
            Failure::Internal => ApiError::internal("Internal error occurred: fault injected"),
            Failure::Conflict => ApiError::modified(resource, name),
            Failure::Gone => ApiError::expired("The resourceVersion for the provided watch is too old."),
            Failure::TooManyRequests => {
                ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.")
                    .with(serde_json::json!({"retryAfterSeconds": 1}))
            }
            Failure::Unavailable => ApiError::new(
                503,
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
        }
    }
}

#[derive(Default)]
struct Rules {
    delays: Vec<(Matcher, Duration)>,
    failures: Vec<(Matcher, usize, Failure)>,
}

/// Switches of a running server; all take effect on the next request or event.
pub struct Faults {
    rules: Mutex<Rules>,
    paused: watch::Sender<bool>,
    store: Arc<Store>,
}

impl Faults {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { rules: Mutex::default(), paused: watch::Sender::new(false), store }
    }

    /// Matching requests wait this long before they are handled; several delays add up.
    pub fn delay(&self, matcher: Matcher, delay: Duration) {
        self.rules().delays.push((matcher, delay));
    }

    /// The next `n` matching requests fail without an effect.
    pub fn fail_next(&self, matcher: Matcher, n: usize, failure: Failure) {
        self.rules().failures.push((matcher, n, failure));
    }

    /// How many of the failures ordered by [`Faults::fail_next`] have not happened yet.
    pub fn pending(&self) -> usize {
        self.rules().failures.iter().map(|(_, n, _)| n).sum()
    }

    /// Takes back all delays and failures, and resumes.
    pub fn clear(&self) {
        *self.rules() = Rules::default();
        self.resume();
    }

    /// Ends every open watch, as a restart of a load balancer does.
    pub fn drop_watches(&self) {
        self.store.drop_watches();
    }

    /// Forgets all watch history and ends every open watch: resuming from an older resourceVersion gets 410.
    pub fn expire_watches(&self) {
        self.store.compact();
        self.store.drop_watches();
    }

    /// Requests that arrive from now on hang until [`Faults::resume`]; open watches go on.
    pub fn pause(&self) {
        self.paused.send_replace(true);
    }

    /// Lets paused requests go on.
    pub fn resume(&self) {
        self.paused.send_replace(false);
    }

    /// Applied to every API request before it is handled.
    pub(crate) async fn before(&self, verb: &str, resource: &str, name: &str) -> Result<(), ApiError> {
        let mut paused = self.paused.subscribe();
        // The sender lives as long as self.
        let _ = paused.wait_for(|paused| !paused).await;
        let delay: Duration = {
            let rules = self.rules();
            rules.delays.iter().filter(|(m, _)| m.matches(verb, resource, name)).map(|(_, d)| *d).sum()
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut rules = self.rules();
        let hit = rules.failures.iter_mut().find(|(m, n, _)| *n > 0 && m.matches(verb, resource, name));
        let Some((_, left, failure)) = hit else { return Ok(()) };
        *left -= 1;
        let error = failure.error(resource.split('/').next().unwrap_or(resource), name);
        rules.failures.retain(|(_, n, _)| *n > 0);
        Err(error)
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
