//! The Kubernetes API as this project uses it: slim objects in, small patches out.
//!
//! [`Kube`] is a cheap-to-clone handle. It watches any [`kapi::Object`] straight from the wire into the slim
//! type (a full Pod is never built in memory), writes annotations and conditions as guarded patches with many
//! in flight, records Events without ever blocking the caller, and elects a leader on a Lease.
//!
//! The list and watch loop is our own on top of kube's transport: an object that does not decode must not stop
//! its neighbours, a broken stream must be told to the consumer when it breaks and when it is whole again, and
//! every object is decoded once, from the borrowed line.

mod backoff;
mod client;
mod connection;
mod credentials;
mod election;
mod error;
mod event;
mod lease;
mod lines;
mod path;
mod settings;
mod standing;
mod watch;

pub use backoff::Backoff;
pub use client::{Kube, Patch, Patched, Subresource};
pub use election::{Election, ElectionSettings};
pub use error::{Class, Error};
pub use event::{EventCounters, Severity, now};
pub use kapi::ObjectKey;
pub use lease::{Lease, LeaseSpec};
pub use path::{ObjectRef, Scope};
pub use settings::Settings;
pub use standing::Standing;
pub use watch::{Change, Watch};
