//! A list in pages.

use http::Method;
use kapi::Object;

use super::{Change, decode};
use crate::client::scoped_path;
use crate::path::{describe, query};
use crate::{Error, Kube, Scope};

/// Objects per page: small enough that a page of pods stays a few MB of text.
const PAGE: &str = "500";

/// Reads all pages; returns the resource version to watch from. A list whose continuation expired starts over.
pub(crate) async fn list_pages<T: Object>(
    kube: &Kube,
    scope: &Scope,
    objects: &mut Vec<T>,
    bad: &mut Vec<Change<T>>,
) -> Result<String, Error> {
    let what = describe("list", &T::RESOURCE, scope.namespace.as_deref(), None, None);
    let mut token = String::new();
    let mut restarts = 0;
    loop {
        let mut path = scoped_path(&T::RESOURCE, scope);
        query(&mut path, "limit", PAGE);
        if !token.is_empty() {
            query(&mut path, "continue", &token);
        }
        let body = match kube.call(&what, Method::GET, path, None).await {
            Ok(body) => body,
            Err(error) if error.code() == Some(410) && !token.is_empty() && restarts < 3 => {
                restarts += 1;
                token.clear();
                objects.clear();
                bad.clear();
                continue;
            }
            Err(error) => return Err(error),
        };
        let page = decode::page(&body, objects, bad).map_err(|error| Error::Transport {
            what: what.clone(),
            message: format!("the answer is no list: {error}"),
        })?;
        if page.continue_token.is_empty() {
            return Ok(page.resource_version);
        }
        token = page.continue_token;
    }
}
