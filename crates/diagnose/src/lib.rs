//! Answers to operators' questions. Pure: what is asked about was read by the caller, from manifests or from a cluster.

pub mod policy;
