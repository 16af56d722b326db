//! What goes into the core and what comes out of it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use compile::Db;
use kapi::annotations::PodNetwork;
use kapi::{EndpointSlice, Namespace, Node, Pod, PodKey, Service, ServiceKey};
use ovsdb::{Op, Rejection, Update};
use policy::{Kind, Policy, PolicyId};
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

impl<T> Change<T> {
    /// The same change of what `with` makes of the objects.
    pub(crate) fn map<U>(self, with: impl Fn(T) -> U) -> Change<U> {
        match self {
            Change::Snapshot(list) => Change::Snapshot(list.into_iter().map(with).collect()),
            Change::Applied(object) => Change::Applied(with(object)),
            Change::Deleted(key) => Change::Deleted(key),
        }
    }
}

/// What the core is told.
#[derive(Debug)]
pub enum Input {
    /// Nodes changed.
    Nodes(Change<Node>),
    /// Pods of any node changed.
    Pods(Change<Pod>),
    /// Services changed.
    Services(Box<Change<Service>>),
    /// EndpointSlices changed.
    Slices(Change<EndpointSlice>),
    /// An object cannot be read any more.
    Unreadable(Unreadable),
    /// Namespaces changed.
    Namespaces(Change<Namespace>),
    /// Policies of a kind changed.
    Policies(Kind, Change<PolicyObject>),
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
    /// A condition was written to a policy, or not.
    Reported {
        /// The policy.
        id: PolicyId,
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

/// A policy, and what its object says of this zone.
#[derive(Debug, Clone)]
pub struct PolicyObject {
    /// The policy.
    pub policy: Policy,
    /// The condition of this zone its object carries.
    pub carried: Option<PolicyCondition>,
}

impl From<Policy> for PolicyObject {
    fn from(policy: Policy) -> PolicyObject {
        PolicyObject { policy, carried: None }
    }
}

/// Whether a policy of the administrator is in place in this zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyCondition {
    /// Whether it is, wholly.
    pub ready: bool,
    /// For people.
    pub message: String,
    /// The generation of the object this is about.
    pub generation: Option<i64>,
}

impl PolicyCondition {
    /// Whether this says what `wanted` does. The reference writes no generation.
    pub(crate) fn says(&self, wanted: &PolicyCondition) -> bool {
        self.ready == wanted.ready
            && self.message == wanted.message
            && (self.generation.is_none() || self.generation == wanted.generation)
    }
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
    /// These services changed, appeared or went; the first time all there are. Never before all are known.
    ServicesChanged(Vec<ServiceKey>),
    /// The Northbound database holds what changes of a service asked for.
    Programmed {
        /// The service.
        key: ServiceKey,
        /// Since the first of the changes was heard of.
        took: Duration,
        /// When that happened which made its EndpointSlices change.
        triggers: Vec<SystemTime>,
    },
    /// Write this zone's condition to a policy; answered by [`Input::Reported`].
    Report {
        /// The policy.
        id: PolicyId,
        /// Its UID.
        uid: String,
        /// The condition.
        condition: PolicyCondition,
    },
    /// A warning for the owner of a policy.
    WarnPolicy {
        /// The policy.
        id: PolicyId,
        /// Its UID.
        uid: String,
        /// What cannot be used, and what follows.
        message: String,
    },
    /// A warning for the owner of a namespace.
    WarnNamespace {
        /// The namespace.
        name: String,
        /// What cannot be used, and what follows.
        message: String,
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
