//! CNI GC: removes attachments of our network that the runtime does not list.

use ::cni::{NetConf, valid_attachments};

use super::{context::CniServer, failure::Failure, ports::PodPort};

impl CniServer {
    /// Removes every attachment of the configuration's network that is not in its list. Without a list nothing is
    /// removed; a listed attachment never is, nor one whose ADD is running.
    pub(crate) async fn gc(&self, conf: &NetConf) -> Result<(), Failure> {
        let Some(valid) = valid_attachments(conf) else { return Ok(()) };
        if !self.ports.is_up() {
            return Err(Failure::Check("the Open vSwitch database is not available".to_owned()));
        }
        let network = if conf.is_default() { "" } else { conf.name.as_str() };
        let listed =
            |p: &PodPort| valid.iter().any(|(sandbox, ifname)| *sandbox == p.sandbox && p.is_ifname(ifname));
        let stale: Vec<PodPort> = self
            .ports
            .pods()
            .into_iter()
            .filter(|p| p.on_bridge && p.network == network && !listed(p))
            .filter(|p| !self.turns.has_sandbox(&p.sandbox))
            .collect();
        let mut outcome = Ok(());
        for port in stale {
            tracing::info!(
                sandbox = port.sandbox,
                iface_id = port.iface_id,
                "removing an attachment not in use"
            );
            let (sandbox, ifname) = (port.sandbox.clone(), port.pod_ifname.clone());
            self.ledger.remove(&sandbox, &ifname);
            // One that cannot be removed does not keep the others.
            outcome = outcome.and(self.remove(&sandbox, &ifname, vec![port], &[]).await);
        }
        outcome
    }
}
