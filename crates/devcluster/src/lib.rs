//! devcluster
