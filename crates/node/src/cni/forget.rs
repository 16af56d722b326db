//! Connections of a pod that is gone: whoever gets its address next must not get their packets.

use std::{collections::BTreeSet, net::IpAddr};

use host::conntrack::Conntrack;

use super::{
    context::CniServer,
    ports::{PodPort, Ports},
};

/// Addresses of a sandbox and its result that no other pod's port on the bridge has.
pub(crate) fn abandoned(
    ports: &Ports,
    sandbox: &str,
    mine: &[PodPort],
    result: &[IpAddr],
) -> BTreeSet<IpAddr> {
    let addresses = |port: &PodPort| -> Vec<IpAddr> {
        port.ips.iter().filter_map(|net| net.split('/').next()?.parse().ok()).collect()
    };
    let mut abandoned: BTreeSet<IpAddr> =
        mine.iter().flat_map(addresses).chain(result.iter().copied()).collect();
    if !abandoned.is_empty() {
        for other in ports.pods().iter().filter(|port| port.on_bridge && port.sandbox != sandbox) {
            for address in addresses(other) {
                abandoned.remove(&address);
            }
        }
    }
    abandoned
}

impl CniServer {
    /// Forgets the connections that these addresses answer. A table that cannot be read must not keep a pod from ending.
    pub(crate) async fn forget_connections(&self, sandbox: &str, addresses: BTreeSet<IpAddr>) {
        if addresses.is_empty() {
            return;
        }
        let forget = move || -> host::Result<usize> {
            let conntrack = Conntrack::open()?;
            let found = conntrack.matching(|one| addresses.contains(&one.reply.src.ip()))?;
            found.iter().try_for_each(|one| conntrack.forget(one))?;
            Ok(found.len())
        };
        match tokio::task::spawn_blocking(forget).await {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => tracing::debug!(sandbox, count, "connections of the pod forgotten"),
            Ok(Err(error)) => {
                tracing::warn!(sandbox, %error, "connections of the pod may linger in the kernel")
            }
            Err(error) => tracing::warn!(sandbox, %error, "connections of the pod may linger in the kernel"),
        }
    }
}
