//! watch: a stream of events, as objects, tables or metadata.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};

use super::{
    Api, Input, Reply, Target, read,
    reply::{Form, partial},
};
use crate::{
    error::{ApiError, FieldError},
    kind::Kind,
    selector::Selector,
    store::{Change, ChangeType, Entry, Subscription, WatchStart, event_line},
    table,
};

/// How long a watch lasts if the client does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);
/// Time between bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// Events are gathered into pieces of about this size.
const PIECE: usize = 64 * 1024;

/// How one client wants its events.
struct View {
    kind: Arc<Kind>,
    namespace: String,
    selector: Selector,
    form: Form,
    include: String,
    bookmarks: bool,
}

pub(super) fn open(api: &Arc<Api>, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    let form = Form::of(input.header("accept").replace(";stream=watch", "").as_str())?;
    let selector = Selector::parse(input.query("labelSelector"), input.query("fieldSelector"), &target.kind)?;
    let view = View {
        kind: target.kind.clone(),
        namespace: target.namespace.clone(),
        selector,
        form,
        include: input.query("includeObject").into(),
        bookmarks: input.flag("allowWatchBookmarks")?,
    };
    let (start, initial_end) = start(input)?;
    let timeout = match input.query("timeoutSeconds") {
        "" | "0" => DEFAULT_TIMEOUT,
        text => Duration::from_secs(
            text.parse()
                .map_err(|_| ApiError::bad_request(format!("timeoutSeconds: {text:?} is not a number")))?,
        ),
    };
    let subscription = match api.store.watch_objects(&view.kind, &view.namespace, &view.selector, start) {
        Ok(subscription) => subscription,
        // Once a watch is understood, its errors are events of the stream.
        Err(error) => {
            let line = format!("{}\n", json!({"type": "ERROR", "object": error.to_status()}));
            return Ok(Reply::bytes(200, Bytes::from(line)));
        }
    };
    let stream = Stream::new(view, subscription, api.clone(), timeout, initial_end);
    let body = futures::stream::unfold(stream, |mut stream| async move {
        let piece = stream.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(piece)), stream))
    });
    Ok(Reply::new(200, "application/json", StreamBody::new(body).boxed_unsync()))
}

/// Where to begin, and whether the end of the initial events is to be marked.
fn start(input: &Input) -> Result<(WatchStart, bool), ApiError> {
    let version = input.query("resourceVersion");
    let invalid = |field: &str, why: &str| {
        let error = FieldError::forbidden(field, why);
        ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error])
    };
    let asked = input.has("sendInitialEvents");
    let version_match = input.query("resourceVersionMatch");
    if asked && version_match != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return Err(invalid("resourceVersionMatch", why));
    }
    if !asked && !version_match.is_empty() {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        return Err(invalid("resourceVersionMatch", why));
    }
    if asked && input.flag("sendInitialEvents")? {
        return Ok((WatchStart::Present, true));
    }
    match version {
        "" if asked => Ok((WatchStart::Now, false)),
        "" | "0" => Ok((WatchStart::Present, false)),
        text => match text.parse() {
            Ok(rv) => Ok((WatchStart::After(rv), false)),
            Err(_) => {
                Err(ApiError::bad_request(format!("invalid resource version {text:?}: must be a number")))
            }
        },
    }
}

struct Stream {
    view: View,
    subscription: Subscription,
    api: Arc<Api>,
    ready: VecDeque<Bytes>,
    deadline: Instant,
    ticks: tokio::time::Interval,
    /// Table columns are sent with the first event only.
    columns_sent: bool,
    ended: bool,
}

impl Stream {
    fn new(
        view: View,
        mut subscription: Subscription,
        api: Arc<Api>,
        timeout: Duration,
        initial_end: bool,
    ) -> Self {
        let now = Instant::now();
        let mut ticks = tokio::time::interval_at(now + BOOKMARKS, BOOKMARKS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let present = std::mem::take(&mut subscription.present);
        let missed = std::mem::take(&mut subscription.missed);
        let rv = subscription.rv;
        let mut stream = Self {
            view,
            subscription,
            api,
            ready: VecDeque::new(),
            deadline: now + timeout,
            ticks,
            columns_sent: false,
            ended: false,
        };
        for entry in &present {
            let line = stream.line(ChangeType::Added, entry, None);
            stream.ready.push_back(line);
        }
        for change in &missed {
            stream.queue(change);
        }
        if initial_end && stream.view.bookmarks {
            let line = stream.bookmark(rv, true);
            stream.ready.push_back(line);
        }
        stream
    }

    /// The next piece of the body; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.ready.is_empty() {
                return Some(self.piece());
            }
            if self.ended {
                return None;
            }
            tokio::select! {
                biased;
                () = self.api.stop.cancelled() => self.ended = true,
                change = self.subscription.changes.recv() => match change {
                    Some(change) => {
                        self.queue(&change);
                        self.queue_waiting();
                    }
                    None => self.ended = true,
                },
                () = tokio::time::sleep_until(self.deadline) => {
                    self.queue_bookmark();
                    self.ended = true;
                }
                _ = self.ticks.tick(), if self.view.bookmarks => self.queue_bookmark(),
            }
        }
    }

    /// Takes what else has arrived, so that a burst becomes few pieces.
    fn queue_waiting(&mut self) {
        for _ in 0..256 {
            match self.subscription.changes.try_recv() {
                Ok(change) => self.queue(&change),
                Err(_) => return,
            }
        }
    }

    fn piece(&mut self) -> Bytes {
        if self.ready.len() == 1 {
            return self.ready.pop_front().unwrap_or_default();
        }
        let mut out = BytesMut::new();
        while let Some(line) = self.ready.front() {
            if !out.is_empty() && out.len() + line.len() > PIECE {
                break;
            }
            out.extend_from_slice(line);
            self.ready.pop_front();
        }
        out.freeze()
    }

    /// A bookmark, unless changes it would skip still wait.
    fn queue_bookmark(&mut self) {
        let rv = {
            // Changes are queued under the same lock, so an empty queue now means all up to rv was seen.
            let state = self.api.store.lock();
            if !self.subscription.changes.is_empty() {
                return;
            }
            state.rv
        };
        if self.view.bookmarks {
            let line = self.bookmark(rv, false);
            self.ready.push_back(line);
        }
    }

    fn bookmark(&self, rv: u64, initial_end: bool) -> Bytes {
        let mut object = json!({"kind": self.view.kind.kind, "apiVersion": self.view.kind.api_version(),
            "metadata": {"resourceVersion": rv.to_string(), "creationTimestamp": null}});
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.view.form {
            Form::Object => object,
            Form::Metadata => partial(&object),
            Form::Table => {
                let rows = json!([{"cells": [], "object": partial(&object)}]);
                table::table(&self.view.kind, rows, json!({"resourceVersion": rv.to_string()}), false)
            }
        };
        Bytes::from(format!("{}\n", json!({"type": "BOOKMARK", "object": object})))
    }

    fn queue(&mut self, change: &Arc<Change>) {
        let view = &self.view;
        let covers = |entry: &Entry| {
            let inside =
                view.namespace.is_empty() || entry.value["metadata"]["namespace"] == view.namespace.as_str();
            inside && view.selector.matches(&entry.value)
        };
        let before = change.old.as_deref().is_some_and(covers);
        let after = change.ty != ChangeType::Deleted && covers(&change.new);
        let line = match (before, after) {
            (false, false) => return,
            (false, true) => self.line(ChangeType::Added, &change.new, Some(change)),
            (true, true) => self.line(ChangeType::Modified, &change.new, Some(change)),
            (true, false) if change.ty == ChangeType::Deleted => {
                self.line(ChangeType::Deleted, &change.new, Some(change))
            }
            // It left the selection: the last state inside it, at the version of the change.
            (true, false) => {
                let mut last = change.old.as_ref().map(|e| e.value.clone()).unwrap_or_default();
                last["metadata"]["resourceVersion"] = change.rv.to_string().into();
                self.line(ChangeType::Deleted, &Entry::new(last, change.rv), None)
            }
        };
        self.ready.push_back(line);
    }

    fn line(&mut self, ty: ChangeType, entry: &Arc<Entry>, change: Option<&Arc<Change>>) -> Bytes {
        let kind = &self.view.kind;
        match self.view.form {
            Form::Object => {
                if let Some(change) = change.filter(|c| c.ty == ty)
                    && entry.seen_as(kind).is_none()
                {
                    return change.line();
                }
                event_line(ty, &read::seen_bytes(kind, entry))
            }
            Form::Metadata => event_line(ty, partial(&read::seen(kind, entry)).to_string().as_bytes()),
            Form::Table => {
                let object: Value = read::seen(kind, entry);
                let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let rows = table::rows(kind, [&object], &self.view.include);
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                event_line(ty, table::table(kind, rows, meta, columns).to_string().as_bytes())
            }
        }
    }
}
