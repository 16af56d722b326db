//! What goes into the core and what comes out of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use compile::Db;
use kapi::annotations::PodNetwork;
use kapi::{EndpointSlice, Node, Pod, PodKey, Service, ServiceKey};
use ovsdb::{Op, Rejection, Update};
use world::Key;

/// A change of one kind of object.
#[derive(Debug, Clone)]
pub enum Change<T> {
    /// All objects there are; others are gone.
    Snapshot(Vec<T>),
    /// An object appeared or changed.
    Applied(T),
    /// The object of this namespace (empty if none) and name is gone.
    Deleted(PodKey),
}

/// What the core is told.
#[derive(Debug)]
pub enum Input {
    /// Nodes changed.
    Nodes(Change<Node>),
    /// Pods bound to this zone's node changed.
    Pods(Change<Pod>),
    /// The complete list of namespaces.
    Namespaces(BTreeSet<String>),
    /// A namespace appeared.
    NamespaceApplied(String),
    /// A namespace is gone.
    NamespaceDeleted(String),
    /// Services changed.
    Services(Box<Change<Service>>),
    /// EndpointSlices changed.
    Slices(Change<EndpointSlice>),
    /// An object cannot be read any more.
    Unreadable(Unreadable),
    /// A database was loaded anew.
    Loaded(Db, Update),
    /// A database changed.
    Updated(Db, Update),
    /// The connection to a database is lost.
    Lost(Db),
    /// The connection to a database is back, and what is known of it still holds.
    Back(Db),
    /// A transaction ended.
    Transacted {
        /// Of which database.
        db: Db,
        /// The number it was sent under.
        id: u64,
        /// How it ended.
        result: Result<(), TxnFailure>,
    },
    /// A pod's annotation was written, or not.
    Annotated {
        /// The pod.
        key: PodKey,
        /// Its UID.
        uid: String,
        /// How it ended.
        result: Result<(), PatchError>,
    },
    /// Time went by.
    Tick,
}

/// An object that cannot be read any more, of a kind the tables keep the last readable state of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// A Service.
    Service(ServiceKey),
    /// An EndpointSlice, as `namespace/name`.
    Slice(String),
}

/// Why a transaction was not made, or is not known to have been made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnFailure {
    /// The server refuses it; nothing of it took effect.
    Refused(Rejection),
    /// There was no connection, or it was lost before the reply.
    Unknown,
}

/// Why an annotation was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The pod is gone, or another of its name took its place.
    #[error("the pod is gone")]
    Gone,
    /// Worth trying again.
    #[error("{0}")]
    Transient(String),
    /// The API server refuses it.
    #[error("{0}")]
    Refused(String),
}

/// What the core wants done.
#[derive(Debug)]
pub enum Output {
    /// Make a transaction; answered by [`Input::Transacted`].
    Transact {
        /// In which database.
        db: Db,
        /// The number of the transaction.
        id: u64,
        /// Its operations.
        ops: Vec<Op>,
    },
    /// Write the network annotation of a pod; answered by [`Input::Annotated`].
    Annotate {
        /// The pod.
        key: PodKey,
        /// Its UID: another pod of the same name must not be touched.
        uid: String,
        /// The annotation's value.
        value: String,
    },
    /// The pod's addresses are decided.
    Decided {
        /// The pod.
        key: PodKey,
        /// Its UID.
        uid: String,
        /// The addresses.
        network: Arc<PodNetwork>,
    },
    /// The pod has to wait, and why.
    Waiting {
        /// The pod.
        key: PodKey,
        /// Its UID.
        uid: String,
        /// Cause and cure.
        reason: String,
    },
    /// A warning for the owner of a pod.
    Warn {
        /// The pod.
        key: PodKey,
        /// Its UID.
        uid: String,
        /// The event's reason.
        reason: &'static str,
        /// Cause and cure.
        message: String,
    },
    /// A warning for the owner of a service.
    WarnService {
        /// The service.
        key: ServiceKey,
        /// Its UID.
        uid: String,
        /// The event's reason.
        reason: &'static str,
        /// Cause and cure.
        message: String,
    },
    /// The Northbound database holds what changes of a service asked for.
    Programmed {
        /// The service.
        key: ServiceKey,
        /// Since the first of the changes was heard of.
        took: Duration,
        /// When that happened which made its EndpointSlices change.
        triggers: Vec<SystemTime>,
    },
    /// The database holds what this key asks for.
    Settled {
        /// Which database.
        db: Db,
        /// The key.
        key: Key,
    },
    /// The database refuses what this key asks for.
    Refused {
        /// Which database.
        db: Db,
        /// The key.
        key: Key,
        /// What the server said.
        error: String,
    },
}
