//! get and list.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use serde_json::{Value, json};

use super::{Entry, Key, Store, shelf::Shelf};
use crate::{
    error::{ApiError, FieldError},
    kind::Kind,
    selector::Selector,
};

/// What to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) namespace: String,
    pub(crate) selector: Selector,
    pub(crate) limit: usize,
    pub(crate) token: String,
    pub(crate) resource_version: String,
    pub(crate) version_match: String,
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) rv: u64,
    pub(crate) token: String,
    pub(crate) remaining: Option<usize>,
}

impl Store {
    pub(crate) fn get_object(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Entry>, ApiError> {
        let state = self.lock();
        let found = state.object(&kind.shelf, namespace, name).cloned();
        found.ok_or_else(|| ApiError::not_found(&kind.resource(), name))
    }

    pub(crate) fn list_objects(&self, kind: &Kind, options: &ListOptions) -> Result<Page, ApiError> {
        let state = self.lock();
        let (mut start, mut at) = (Bound::Unbounded, state.rv);
        if !options.token.is_empty() {
            let (rv, key) = read_token(&options.token)
                .ok_or_else(|| ApiError::bad_request("continue key is not valid: invalid continue token"))?;
            at = rv;
            start = Bound::Excluded(key);
        } else {
            check_version(options, state.rv, state.shelf(&kind.shelf).map_or(0, |s| s.compacted))?;
        }
        let mut page = Page { entries: Vec::new(), rv: at, token: String::new(), remaining: None };
        let Some(shelf) = state.shelf(&kind.shelf) else { return Ok(page) };
        if !options.namespace.is_empty() && matches!(start, Bound::Unbounded) {
            start = Bound::Included((options.namespace.clone(), String::new()));
        }
        let past = if at < state.rv && !options.token.is_empty() { Some(rewound(shelf, at)?) } else { None };
        let in_scope = |key: &Key| options.namespace.is_empty() || key.0 == options.namespace;
        let objects = past.as_ref().unwrap_or(&shelf.objects);
        let walk = objects.range::<Key, _>((start, Bound::Unbounded));
        let mut last: Option<&Key> = None;
        let mut more = 0;
        for (key, entry) in walk.take_while(|(key, _)| in_scope(key)) {
            if !options.selector.matches(&entry.value) {
                continue;
            }
            if options.limit > 0 && page.entries.len() == options.limit {
                more += 1;
                continue;
            }
            page.entries.push(entry.clone());
            last = Some(key);
        }
        if let (true, Some(last)) = (more > 0, last) {
            page.token = write_token(at, last);
            // As the real server: unknown when a selector hides how many there are.
            page.remaining = options.selector.is_empty().then_some(more);
        }
        Ok(page)
    }
}

/// The state at `rv`: a continued list shows what its first page saw, so later changes are undone.
fn rewound(shelf: &Shelf, rv: u64) -> Result<BTreeMap<Key, Arc<Entry>>, ApiError> {
    let changes = shelf.since(rv).ok_or_else(|| {
        ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter.",
        )
    })?;
    let mut objects = shelf.objects.clone();
    for change in changes.iter().rev() {
        let key = super::key_of(&change.new.value);
        match &change.old {
            Some(old) => objects.insert(key, old.clone()),
            None => objects.remove(&key),
        };
    }
    Ok(objects)
}

fn check_version(options: &ListOptions, now: u64, compacted: u64) -> Result<(), ApiError> {
    let wanted = &options.resource_version;
    if wanted.is_empty() {
        if !options.version_match.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            let error = FieldError::forbidden("resourceVersionMatch", why);
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
        }
        return Ok(());
    }
    let rv: u64 = wanted.parse().map_err(|_| {
        ApiError::bad_request(format!("invalid resource version {wanted:?}: must be a number"))
    })?;
    if rv > now {
        return Err(ApiError::new(
            504,
            "Timeout",
            format!("Too large resource version: {rv}, current: {now}"),
        )
        .with(json!({"causes": [{"reason": "ResourceVersionTooLarge",
                "message": "Too large resource version"}], "retryAfterSeconds": 1})));
    }
    let exact = options.version_match == "Exact";
    if exact && rv != now && rv <= compacted {
        return Err(ApiError::expired(format!("The resourceVersion for the provided list is too old: {rv}")));
    }
    Ok(())
}

fn write_token(rv: u64, key: &Key) -> String {
    use base64::Engine as _;
    let text = json!({"v": "meta.k8s.io/v1", "rv": rv, "start": [key.0, key.1]}).to_string();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

fn read_token(token: &str) -> Option<(u64, Key)> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).ok()?;
    let value: Value = serde_json::from_slice(&bytes).ok()?;
    let part = |at: usize| value["start"][at].as_str().map(String::from);
    Some((value["rv"].as_u64()?, (part(0)?, part(1)?)))
}
