//! kube-io
