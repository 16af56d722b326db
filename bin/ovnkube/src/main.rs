//! ovnkube
fn main() {}
