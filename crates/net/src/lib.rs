//! Addresses and the pools they come from: MAC rules, dual-stack pairs, node subnets carved out of cluster
//! CIDRs, and bitmap pools for pod addresses and small ids. Pure: no I/O, no clock, no randomness.

mod carver;
mod dual;
mod id_pool;
mod ip_pool;
mod mac;
mod offset;

pub use carver::{Carver, CarverError, ClusterCidr};
pub use dual::{Dual, Family};
pub use id_pool::IdPool;
pub use ip_pool::{IpPool, IpPoolError};
pub use ipnet::{IpNet, Ipv4Net, Ipv6Net};
pub use mac::{Mac, ParseMacError};
pub use offset::{nth_address, overlap, position_in};
