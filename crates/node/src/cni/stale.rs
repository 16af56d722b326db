//! Keeps ports and links in step when either side forgets: after a reboot of the host the links are gone, after a
//! restart of Open vSwitch with `--delete-transient-ports` the ports are.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{bandwidth::Limits, context::CniServer, failure::Failure, plug, plug::Plug, ports::PodPort};

/// Follows the database's loads and the pods' bandwidth annotations until the server is dropped.
pub(crate) async fn tend(server: Arc<CniServer>) {
    let mut link = server.ports.link();
    let mut pods = server.board.changes();
    let mut loads = 0;
    loop {
        tokio::select! {
            loaded = async { link.wait_for(|l| l.up && l.loads != loads).await.map(|l| l.loads) } => {
                let Ok(loaded) = loaded else { return };
                loads = loaded;
                if let Err(e) = server.sweep().await {
                    tracing::warn!(error = %e, "ports of pods could not be checked after (re)connecting to Open vSwitch");
                }
                server.follow_all_limits().await;
            }
            pod = pods.recv() => match pod {
                Ok(key) => server.follow_limits(&key).await,
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => server.follow_all_limits().await,
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            },
        }
    }
}

impl CniServer {
    /// Waits for the database and brings ports and links in step. The same runs after every (re)connection; calling
    /// it first makes a start wait for it.
    pub async fn sweep_now(&self) {
        self.ports.ready().await;
        if let Err(e) = self.sweep().await {
            tracing::warn!(error = %e, "ports of pods could not be checked");
        }
    }

    /// Removes ports of the bridge whose link is gone, puts back ports whose link lives, and remembers the rest.
    /// Ports that are not of pods are not looked at.
    pub(crate) async fn sweep(&self) -> Result<(), Failure> {
        let ports = self.ports.pods();
        let host = self.host.clone();
        let links =
            tokio::task::spawn_blocking(move || host.links()).await.map_err(|_| Failure::Thread)??;
        let links: BTreeSet<&str> = links.iter().map(|l| l.name.as_str()).collect();
        for port in ports.iter().filter(|p| p.on_bridge && !links.contains(p.name.as_str())) {
            if self.turns.has_sandbox(&port.sandbox) {
                continue;
            }
            tracing::info!(
                port = port.name,
                iface_id = port.iface_id,
                "removing the port of a pod that is gone"
            );
            self.ledger.remove(&port.sandbox, &port.pod_ifname);
            let ops = self
                .ports
                .read(|cache| plug::unplug(cache, self.ports.bridge(), &[port.port], &port.sandbox));
            self.ports.commit(&ops, |cache| cache.row("Port", &port.port).is_none()).await?;
        }
        for port in ports.iter().filter(|p| p.on_bridge && links.contains(p.name.as_str())) {
            self.ledger.put(self.adopt(port));
        }
        let known: BTreeSet<&str> = ports.iter().map(|p| p.name.as_str()).collect();
        for plug in self.ledger.all().into_iter().filter(|p| !known.contains(p.name.as_str())) {
            if !links.contains(plug.name.as_str()) {
                self.ledger.remove(&plug.sandbox, &plug.pod_ifname);
                continue;
            }
            tracing::warn!(
                port = plug.name,
                iface_id = plug.iface_id,
                "putting back the port of a living pod"
            );
            let plug = Plug { ids: self.fresh_ids(), ..plug };
            match self.ports.read(|cache| plug.ops(cache, self.ports.bridge())) {
                Ok(ops) => {
                    self.ports.commit(&ops, |cache| cache.row("Port", &plug.ids.port).is_some()).await?;
                    self.ledger.put(plug);
                }
                Err(e) => tracing::warn!(port = plug.name, error = %e, "the port cannot be put back yet"),
            }
        }
        Ok(())
    }

    /// A port found in the database, as we would plug it again.
    fn adopt(&self, port: &PodPort) -> Plug {
        let (pod_uid, limits) = self.ports.read(|cache| {
            let row = cache.row("Interface", &port.interface);
            let uid = row.and_then(|r| r.key("external_ids", "iface-id-ver")).unwrap_or_default().to_owned();
            let policing = row.and_then(|r| r.int("ingress_policing_rate")).unwrap_or(0);
            let qos = cache.row("Port", &port.port).and_then(|p| p.get("qos")?.uuids().next());
            let rate = qos.and_then(|q| cache.row("QoS", &q)?.key("other_config", "max-rate")?.parse().ok());
            let egress = u64::try_from(policing).ok().filter(|r| *r > 0).map(|r| r * 1000);
            (uid, Limits { ingress: rate, egress })
        });
        Plug {
            name: port.name.clone(),
            iface_id: port.iface_id.clone(),
            mac: port.mac.clone(),
            pod_uid,
            sandbox: port.sandbox.clone(),
            pod_ifname: port.pod_ifname.clone(),
            ips: port.ips.clone(),
            since: Duration::from_nanos(u64::try_from(port.since).unwrap_or(u64::MAX)),
            limits,
            ids: self.fresh_ids(),
        }
    }

    async fn follow_all_limits(&self) {
        for view in self.board.all() {
            self.follow_limits(&view.key).await;
        }
    }

    /// Gives a plugged port the limits its pod's annotations say now.
    async fn follow_limits(&self, key: &kapi::PodKey) {
        let Some(view) = self.board.get(key) else { return };
        if !self.ports.is_up() {
            return;
        }
        let iface_id = format!("{}_{}", key.namespace, key.name);
        let limits = match Limits::of(&view.bandwidth) {
            Ok(limits) => limits,
            Err(e) => {
                tracing::warn!(pod = %key, error = %e, "bandwidth annotation ignored, the old limits stay");
                return;
            }
        };
        for port in self.ports.of_iface_id(&iface_id) {
            let fresh = self.fresh_ids();
            let ops = self.ports.read(|cache| {
                super::limits::change(cache, port.port, port.interface, &port.sandbox, &limits, &fresh)
            });
            if ops.is_empty() {
                continue;
            }
            if let Err(e) = self.ports.commit(&ops, |_| false).await {
                tracing::warn!(pod = %key, error = %e, "bandwidth limits could not be changed");
            }
        }
    }
}
