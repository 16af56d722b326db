//! An embedded Kubernetes API server for development clusters, tests and benchmarks.
//!
//! ```text
//!  kubectl, kube-rs ──HTTP/1.1, HTTP/2, TLS──▶ http ──verbs──▶ store ──▶ shelves (objects, history, watchers)
//!                                               │                │
//!                                        table, discovery     strategy (defaults, validation), patch, schema
//! ```
//!
//! It owns all objects in memory; nothing survives [`Server::stop`]. What it accepts, a real API server accepts:
//! unknown and immutable fields, names, versions and uids are treated as strictly. Not here:
//! - in rules of custom resources (`x-kubernetes-validations`, CEL): cost limits, `optionalOldSelf`, and the functions for
//!   URLs, quantities and named formats (a CRD that uses them is refused);
//! - conversion webhooks; ratcheting of anything but rules;
//! - admission webhooks and policies, quotas, limit ranges, disruption budgets on eviction;
//! - of RBAC: aggregated roles, and the check that nobody grants more than they have;
//! - controllers, garbage collection by owner and the token volume of pods; only deleted namespaces and
//!   CustomResourceDefinitions are finished, every namespace gets its `default` service account, and Services with a
//!   selector get their EndpointSlices (not the older Endpoints);
//! - protobuf replies (requests are read), exec, attach and port-forward; logs are empty.

mod access;
mod discovery;
mod endpoints;
mod error;
pub mod external;
mod faults;
mod http;
mod identity;
mod kind;
mod lifecycle;
mod names;
mod openapi;
mod options;
mod patch;
mod pki;
mod protobuf;
mod scheduler;
mod schema;
mod selector;
mod server;
mod services;
mod store;
mod strategy;
mod table;

pub use error::{ApiError, FieldError};
pub use faults::{Failure, Faults, Matcher};
pub use options::{Options, Tls};
pub use server::{Server, StartError};
pub use store::Store;
