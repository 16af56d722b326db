//! The list-and-watch loop.

use std::collections::VecDeque;
use std::time::Duration;

use kapi::Object;

use super::decode::{Broken, Line};
use super::{Change, decode, list_pages};
use crate::client::scoped_path;
use crate::lines::Lines;
use crate::path::{describe, query};
use crate::{Backoff, Error, Kube, Scope};

/// How long the server is asked to keep a watch open.
const SERVER_LIMIT: &str = "420";
/// A healthy server sends a bookmark every minute; a connection that is silent for longer is dead.
const SILENCE_LIMIT: Duration = Duration::from_secs(150);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

enum State<T> {
    /// Nothing is known, or what is known is too old to resume from.
    Unlisted,
    /// Resume from this resource version.
    Listed(String),
    /// A streaming list: the initial events are still coming.
    Filling { lines: Lines, objects: Vec<T> },
    /// Following. `fresh` until the first line.
    Following { lines: Lines, version: String, fresh: bool },
}

pub(super) struct Loop<T> {
    kube: Kube,
    scope: Scope,
    what: String,
    state: State<T>,
    ready: VecDeque<Change<T>>,
    backoff: Backoff,
    pause: Option<Duration>,
    /// The error last told, while the stream is broken.
    down: Option<String>,
    streaming_lists: bool,
}

impl<T: Object> Loop<T> {
    pub(super) fn new(kube: Kube, scope: Scope) -> Self {
        Self {
            what: describe("watch", &T::RESOURCE, scope.namespace.as_deref(), None, None),
            kube,
            scope,
            state: State::Unlisted,
            ready: VecDeque::new(),
            backoff: Backoff::new(FIRST_RETRY, LONGEST_RETRY),
            pause: None,
            down: None,
            streaming_lists: true,
        }
    }

    pub(super) async fn next(&mut self) -> Change<T> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return change;
            }
            if let Some(delay) = self.pause.take() {
                tokio::time::sleep(delay).await;
            }
            self.state = match std::mem::replace(&mut self.state, State::Unlisted) {
                State::Unlisted if self.streaming_lists => self.open_filling().await,
                State::Unlisted => self.list().await,
                State::Listed(version) => self.resume(version).await,
                State::Filling { lines, objects } => self.fill(lines, objects).await,
                State::Following { lines, version, fresh } => self.follow(lines, version, fresh).await,
            };
        }
    }

    fn path(&self) -> String {
        let mut path = scoped_path(&T::RESOURCE, &self.scope);
        query(&mut path, "watch", "true");
        query(&mut path, "allowWatchBookmarks", "true");
        query(&mut path, "timeoutSeconds", SERVER_LIMIT);
        path
    }

    async fn open_filling(&mut self) -> State<T> {
        let mut path = self.path();
        // no resource version: as recent as a read from the store, so nothing that was written is missed
        query(&mut path, "sendInitialEvents", "true");
        query(&mut path, "resourceVersionMatch", "NotOlderThan");
        match self.kube.open(&self.what, path).await {
            Ok(lines) => State::Filling { lines, objects: Vec::new() },
            Err(error) if matches!(error.code(), Some(400 | 422)) => {
                tracing::debug!(%error, "no streaming lists on this server, listing in pages");
                self.streaming_lists = false;
                State::Unlisted
            }
            Err(error) => self.unlisted(&error),
        }
    }

    async fn fill(&mut self, mut lines: Lines, mut objects: Vec<T>) -> State<T> {
        let line = match next_line(&self.what, &mut lines).await {
            Ok(Some(line)) => line,
            Ok(None) => return self.broken(format!("{}: ended within the list", self.what), State::Unlisted),
            Err(error) => return self.broken(error, State::Unlisted),
        };
        match decode::line::<T>(&line) {
            Ok(Line::Added(object)) => objects.push(object),
            Ok(Line::Modified(object)) => {
                objects.retain(|other| !same(other, &object));
                objects.push(object);
            }
            Ok(Line::Deleted(object)) => objects.retain(|other| !same(other, &object)),
            Ok(Line::Bookmark(mark)) if mark.ends_initial_events() => {
                self.complete(objects);
                return State::Following { lines, version: mark.metadata.resource_version, fresh: false };
            }
            Ok(Line::Bookmark(_)) => {}
            Ok(Line::Error(failure)) => return self.broken(failure.message, State::Unlisted),
            Err(Broken::Object { key, error, .. }) => self.ready.push_back(Change::Bad { key, error }),
            Err(Broken::Gone { key, .. }) => objects.retain(|other| other.key() != key),
            Err(Broken::Stream(error)) => {
                return self.broken(format!("{}: {error}", self.what), State::Unlisted);
            }
        }
        State::Filling { lines, objects }
    }

    async fn list(&mut self) -> State<T> {
        let (mut objects, mut bad) = (Vec::new(), Vec::new());
        match list_pages(&self.kube, &self.scope, &mut objects, &mut bad).await {
            Ok(version) => {
                self.ready.extend(bad);
                self.complete(objects);
                State::Listed(version)
            }
            Err(error) => self.unlisted(&error),
        }
    }

    fn complete(&mut self, objects: Vec<T>) {
        self.down = None;
        self.backoff.reset();
        self.ready.push_back(Change::Snapshot(objects));
    }

    async fn resume(&mut self, version: String) -> State<T> {
        let mut path = self.path();
        query(&mut path, "resourceVersion", &version);
        match self.kube.open(&self.what, path).await {
            Ok(lines) => {
                if self.down.take().is_some() {
                    self.ready.push_back(Change::Up);
                }
                State::Following { lines, version, fresh: true }
            }
            Err(error) if cannot_resume(&error) => {
                tracing::debug!(%error, "cannot resume, listing again");
                self.pause = Some(self.backoff.next_delay());
                State::Unlisted
            }
            Err(error) => self.broken(error.to_string(), State::Listed(version)),
        }
    }

    async fn follow(&mut self, mut lines: Lines, mut version: String, fresh: bool) -> State<T> {
        let line = match next_line(&self.what, &mut lines).await {
            Ok(Some(line)) => line,
            Ok(None) => {
                // the server ends watches now and then; one that ends at once is not allowed to spin
                if fresh {
                    self.pause = Some(self.backoff.next_delay());
                }
                return State::Listed(version);
            }
            Err(error) => return self.broken(error, State::Listed(version)),
        };
        match decode::line::<T>(&line) {
            Ok(Line::Added(object) | Line::Modified(object)) => {
                set(&mut version, &object.meta().resource_version);
                self.ready.push_back(Change::Applied(object));
            }
            Ok(Line::Deleted(object)) => {
                set(&mut version, &object.meta().resource_version);
                self.ready.push_back(Change::Deleted(object.key()));
            }
            Ok(Line::Bookmark(mark)) => version = mark.metadata.resource_version,
            Ok(Line::Error(failure)) if failure.code == 410 => {
                tracing::debug!(error = failure.message, "resource version too old, listing again");
                if fresh {
                    self.pause = Some(self.backoff.next_delay());
                }
                return State::Unlisted;
            }
            Ok(Line::Error(failure)) => return self.broken(failure.message, State::Listed(version)),
            Err(Broken::Object { key, resource_version, error }) => {
                set(&mut version, &resource_version);
                self.ready.push_back(Change::Bad { key, error });
            }
            Err(Broken::Gone { key, resource_version }) => {
                set(&mut version, &resource_version);
                self.ready.push_back(Change::Deleted(key));
            }
            Err(Broken::Stream(error)) => {
                return self.broken(format!("{}: {error}", self.what), State::Listed(version));
            }
        }
        self.backoff.reset();
        State::Following { lines, version, fresh: false }
    }

    fn unlisted(&mut self, error: &Error) -> State<T> {
        let text = error.to_string();
        if error.code() == Some(404) && self.down.as_ref() != Some(&text) {
            self.ready.push_back(Change::Unserved);
        }
        self.broken(text, State::Unlisted)
    }

    fn broken(&mut self, error: String, next: State<T>) -> State<T> {
        self.pause = Some(self.backoff.next_delay());
        if self.down.as_ref() != Some(&error) {
            self.down = Some(error.clone());
            self.ready.push_back(Change::Down { error });
        }
        next
    }
}

async fn next_line(what: &str, lines: &mut Lines) -> Result<Option<bytes::Bytes>, String> {
    match tokio::time::timeout(SILENCE_LIMIT, lines.next()).await {
        Ok(result) => result.map_err(|error| format!("{what}: {error}")),
        Err(_) => Err(format!("{what}: silent for {} s", SILENCE_LIMIT.as_secs())),
    }
}

/// The server will never serve this version: too old, or (after a restore of its store) from the future.
fn cannot_resume(error: &Error) -> bool {
    match error {
        Error::Status { code: 400 | 410 | 422, .. } => true,
        Error::Status { code: 504, message, .. } => message.contains("Too large resource version"),
        _ => false,
    }
}

fn same<T: Object>(a: &T, b: &T) -> bool {
    a.meta().name == b.meta().name && a.meta().namespace == b.meta().namespace
}

fn set(version: &mut String, new: &str) {
    if !new.is_empty() {
        version.clear();
        version.push_str(new);
    }
}
