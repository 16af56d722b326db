//! ovn-k8s-cni-overlay
fn main() {}
