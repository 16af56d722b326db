//! CNI DEL: removes what it finds of a sandbox's interface and succeeds with anything already gone.

use std::{net::IpAddr, time::Duration};

use host::Handle;
use kapi::PodKey;

use super::{add::host_name, context::CniServer, failure::Failure, forget::abandoned, plug, ports::PodPort};

/// How long a DEL waits for a lost Open vSwitch database. After that the link is removed and the port is left to the
/// sweep that follows every connection.
const PATIENCE: Duration = Duration::from_secs(5);

impl CniServer {
    /// Detaches an interface, whose ADD had the addresses in `result` as far as the runtime remembers.
    pub(crate) async fn del(
        &self,
        key: PodKey,
        sandbox: &str,
        ifname: &str,
        result: &[IpAddr],
    ) -> Result<(), Failure> {
        let mut place = self.turns.del((key, ifname.to_owned()), sandbox);
        place.turn().await;
        self.ledger.remove(sandbox, ifname);
        if tokio::time::timeout(PATIENCE, self.ports.ready()).await.is_err() {
            tracing::warn!(sandbox, "Open vSwitch database is down; the port is removed when it is back");
            return self.delete_links(vec![host_name(sandbox)]).await;
        }
        let mine: Vec<PodPort> =
            self.ports.of_sandbox(sandbox).into_iter().filter(|p| p.is_ifname(ifname)).collect();
        self.remove(sandbox, ifname, mine, result).await
    }

    /// Removes these ports of a sandbox with their limits and links, and the connections of their addresses and those in
    /// `result`.
    pub(crate) async fn remove(
        &self,
        sandbox: &str,
        ifname: &str,
        ports: Vec<PodPort>,
        result: &[IpAddr],
    ) -> Result<(), Failure> {
        let addresses = abandoned(&self.ports, sandbox, &ports, result);
        let uuids: Vec<_> = ports.iter().map(|p| p.port).collect();
        let mut links: Vec<String> = ports.into_iter().map(|p| p.name).collect();
        let usual = host_name(sandbox);
        // The usual name may belong to another interface of the same sandbox.
        let taken = self.ports.of_sandbox(sandbox).iter().any(|p| p.name == usual && !p.is_ifname(ifname));
        if !links.contains(&usual) && !taken {
            links.push(usual);
        }
        let ops = self.ports.read(|cache| plug::unplug(cache, self.ports.bridge(), &uuids, sandbox));
        let unplug = async {
            if ops.is_empty() {
                return Ok(());
            }
            let gone = |cache: &ovsdb::Cache| uuids.iter().all(|p| cache.row("Port", p).is_none());
            match tokio::time::timeout(PATIENCE, self.ports.commit(&ops, gone)).await {
                Ok(done) => done.map_err(Failure::from),
                Err(_) => {
                    tracing::warn!(
                        sandbox,
                        "Open vSwitch database went down; the port is removed when it is back"
                    );
                    Ok(())
                }
            }
        };
        let (unplugged, deleted) = tokio::join!(unplug, self.delete_links(links));
        // Now that no packet of the pod can bring one back.
        self.forget_connections(sandbox, addresses).await;
        unplugged.and(deleted)
    }

    /// Deletes links, returning as soon as they are gone.
    async fn delete_links(&self, links: Vec<String>) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for name in links {
            let gone = self.links.gone(&name);
            let work = {
                let name = name.clone();
                // A socket of its own: the kernel answers late, and the shared one is for those who are waited for.
                move || Handle::open()?.delete_link_named(&name)
            };
            let deleted = tokio::task::spawn_blocking(work);
            tokio::pin!(deleted);
            let done = tokio::select! {
                Ok(()) = gone => Ok(()),
                deleted = &mut deleted => deleted
                    .map_err(|_| Failure::Thread)
                    .and_then(|d| d.map(|_| ()).map_err(Failure::from)),
            };
            self.links.forget(&name);
            outcome = outcome.and(done);
        }
        outcome
    }
}
