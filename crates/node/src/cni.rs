//! The CNI server: requests of the shim on a unix socket, and everything a pod's attachment needs on this node.
