//! List and watch of one kind as a stream of changes that never ends.

mod decode;
mod list;
mod run;

use futures::StreamExt;
use futures::stream::BoxStream;
use kapi::Object;

use crate::{Kube, ObjectKey, Scope};

pub(crate) use list::list_pages;

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// The complete content of the scope; replaces everything told before. Comes first, and again whenever the
    /// server could not resume.
    Snapshot(Vec<T>),
    /// An object appeared or changed.
    Applied(T),
    /// An object is gone.
    Deleted(ObjectKey),
    /// An object the server holds does not decode. The stream goes on. Ahead of a snapshot that lacks the object
    /// this comes first: keep what is known of it rather than taking it for deleted.
    Bad {
        /// The object, as far as its metadata could be read.
        key: ObjectKey,
        /// What is wrong with it.
        error: String,
    },
    /// The stream is broken and is being retried; what was told may be out of date. Repeated when the error
    /// changes.
    Down {
        /// What happened, for operators.
        error: String,
    },
    /// The server does not know the kind, now. Whether its objects are gone or their definition is only being loaded
    /// cannot be told. [`Change::Down`] follows.
    Unserved,
    /// The stream is whole again after [`Change::Down`], and nothing was missed. A snapshot says so too.
    Up,
}

/// The stream of a watch. Dropping it ends the watch.
pub type Watch<T> = BoxStream<'static, Change<T>>;

pub(crate) fn start<T: Object>(kube: Kube, scope: Scope) -> Watch<T> {
    futures::stream::unfold(run::Loop::new(kube, scope), |mut watch| async move {
        let change = watch.next().await;
        Some((change, watch))
    })
    .boxed()
}
