//! CNI CHECK: one look at the cache and one at the pod's interface.

use host::{NetNs, attach::PodLink};
use kapi::PodKey;

use super::{context::CniServer, failure::Failure};

impl CniServer {
    /// Whether the attachment is as ADD left it.
    pub(crate) async fn check(
        &self,
        key: &PodKey,
        sandbox: &str,
        netns: &str,
        ifname: &str,
    ) -> Result<(), Failure> {
        let unknown = || Failure::Unknown { sandbox: sandbox.to_owned(), ifname: ifname.to_owned() };
        if !self.ports.is_up() {
            return Err(Failure::Check("the Open vSwitch database is not available".to_owned()));
        }
        let mut mine = self.ports.of_sandbox(sandbox).into_iter().filter(|p| p.is_ifname(ifname));
        let port = mine.next().ok_or_else(unknown)?;
        let iface_id = format!("{}_{}", key.namespace, key.name);
        if port.network.is_empty() && port.iface_id != iface_id {
            return Err(Failure::Check(format!(
                "port {} has iface-id {:?}, expected {iface_id}",
                port.name, port.iface_id
            )));
        }
        if !port.on_bridge {
            return Err(Failure::Check(format!("port {} is not on {}", port.name, self.ports.bridge())));
        }
        let mac = port.mac.parse::<net::Mac>().ok().map(|m| m.0);
        let addresses = port.ips.iter().filter_map(|ip| ip.parse().ok()).collect::<Vec<_>>();
        let netns = NetNs::open(netns)?;
        let ifname = ifname.to_owned();
        let look = move || PodLink::check(&netns, &ifname, mac, &addresses);
        tokio::task::spawn_blocking(look)
            .await
            .map_err(|_| Failure::Thread)?
            .map_err(|e| Failure::Check(e.to_string()))
    }
}
