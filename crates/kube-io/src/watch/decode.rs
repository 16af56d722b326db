//! One line of a watch, one page of a list: to slim objects in a single pass, with a slow path that finds out
//! which object is at fault when that fails.

use std::collections::BTreeMap;

use kapi::Object;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Change;
use crate::ObjectKey;

/// A watch event. The server sends `type` before `object`, so the object is decoded in place.
#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
pub(super) enum Line<T> {
    Added(T),
    Modified(T),
    Deleted(T),
    Bookmark(Mark),
    Error(Failure),
}

#[derive(Deserialize)]
pub(super) struct Mark {
    pub(super) metadata: MarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MarkMeta {
    pub(super) resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Mark {
    /// The server has sent everything that existed when the watch began.
    pub(super) fn ends_initial_events(&self) -> bool {
        self.metadata.annotations.get("k8s.io/initial-events-end").is_some_and(|value| value == "true")
    }
}

#[derive(Deserialize)]
pub(super) struct Failure {
    #[serde(default)]
    pub(super) code: u16,
    #[serde(default)]
    pub(super) message: String,
}

/// What a line that does not decode still says.
pub(super) enum Broken {
    /// One object is undecodable.
    Object { key: ObjectKey, resource_version: String, error: String },
    /// A deletion, for which the metadata suffices.
    Gone { key: ObjectKey, resource_version: String },
    /// Not a watch event at all.
    Stream(String),
}

/// Metadata read from an object nothing else of which can be trusted.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Salvage {
    metadata: SalvageMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SalvageMeta {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
}

fn salvage(raw: &str) -> (ObjectKey, String) {
    let Salvage { metadata } = serde_json::from_str(raw).unwrap_or_default();
    let key = ObjectKey { namespace: metadata.namespace, name: metadata.name, uid: metadata.uid };
    (key, metadata.resource_version)
}

pub(super) fn line<T: Object>(bytes: &[u8]) -> Result<Line<T>, Broken> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        r#type: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    serde_json::from_slice::<Line<T>>(bytes).map_err(|error| {
        match serde_json::from_slice::<Envelope<'_>>(bytes) {
            Ok(Envelope { r#type: "DELETED", object }) => {
                let (key, resource_version) = salvage(object.get());
                Broken::Gone { key, resource_version }
            }
            Ok(Envelope { r#type: "ADDED" | "MODIFIED", object }) => {
                let (key, resource_version) = salvage(object.get());
                Broken::Object { key, resource_version, error: error.to_string() }
            }
            _ => Broken::Stream(format!("not a watch event: {error}")),
        }
    })
}

/// One page of a list.
pub(super) struct Page {
    pub(super) resource_version: String,
    /// Empty on the last page.
    pub(super) continue_token: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    r#continue: Option<String>,
}

/// Decodes a page, appending its objects; undecodable ones go to `bad`.
pub(super) fn page<T: Object>(
    bytes: &[u8],
    objects: &mut Vec<T>,
    bad: &mut Vec<Change<T>>,
) -> Result<Page, serde_json::Error> {
    #[derive(Deserialize)]
    struct Whole<T> {
        metadata: PageMeta,
        items: Option<Vec<T>>,
    }
    #[derive(Deserialize)]
    struct Parts<'a> {
        metadata: PageMeta,
        #[serde(borrow)]
        items: Option<Vec<&'a RawValue>>,
    }
    let metadata = match serde_json::from_slice::<Whole<T>>(bytes) {
        Ok(Whole { metadata, items }) => {
            objects.extend(items.into_iter().flatten());
            metadata
        }
        Err(_) => {
            let Parts { metadata, items } = serde_json::from_slice::<Parts<'_>>(bytes)?;
            for raw in items.into_iter().flatten() {
                match serde_json::from_str::<T>(raw.get()) {
                    Ok(object) => objects.push(object),
                    Err(error) => {
                        bad.push(Change::Bad { key: salvage(raw.get()).0, error: error.to_string() })
                    }
                }
            }
            metadata
        }
    };
    Ok(Page {
        resource_version: metadata.resource_version,
        continue_token: metadata.r#continue.unwrap_or_default(),
    })
}
