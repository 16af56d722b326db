//! What the operator configured, as far as it shapes rows.

use std::net::IpAddr;

use net::{Dual, Family, IpNet, nth_address};

/// Configuration of the network controller that shapes rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of this zone's node.
    pub node: String,
    /// Ranges pods live in.
    pub cluster_cidrs: Vec<IpNet>,
    /// Ranges Services live in.
    pub service_cidrs: Vec<IpNet>,
    /// Range of the join switch.
    pub join: Dual<IpNet>,
    /// Range of the transit switch.
    pub transit: Dual<IpNet>,
    /// Masquerade range.
    pub masquerade: Dual<IpNet>,
    /// Source ports address translation may use, first and last; none leaves the choice to OVN.
    pub nat_ports: Option<(u16, u16)>,
    /// Whether each pod is translated on its own instead of the cluster CIDRs at once, so that pods with gateways of
    /// their own can keep their address.
    pub snat_per_pod: bool,
    /// MTU of the overlay in bytes.
    pub mtu: u32,
    /// UDP port of Geneve.
    pub encap_port: u16,
    /// Kind of tunnel, `geneve`.
    pub encap_type: String,
    /// Whether pod ports name the chassis they belong to.
    pub requested_chassis: bool,
    /// Log messages a second that ACL logging may produce, per meter.
    pub acl_logging_rate: u32,
    /// Whether multicast between pods is supported.
    pub multicast: bool,
    /// Whether namespaces have a port group of all their pods (egress firewall and multicast need it).
    pub namespace_groups: bool,
    /// Whether load balancers for node ports are shared by all nodes through template variables.
    pub service_templates: bool,
    /// Whether a packet for a service whose pods are asleep makes an event instead of being rejected.
    pub empty_lb_events: bool,
    /// Whether `.3` of each node subnet belongs to the hybrid overlay.
    pub hybrid_overlay: bool,
    /// What of policies is configurable.
    pub policies: PolicySettings,
}

/// Configuration of policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// Whether administrators' policies count.
    pub admin: bool,
    /// Whether the annotation that asks for rules without connection tracking counts.
    pub stateless: bool,
    /// Whether ICMP passes the isolation of pods.
    pub allow_icmp: bool,
    /// The namespace that stands for the nodes as peers; empty for none.
    pub host_namespace: String,
}

impl Settings {
    /// Whether pods have addresses of this family.
    pub fn has_family(&self, family: Family) -> bool {
        self.cluster_cidrs.iter().any(|net| Family::of_net(net) == family)
    }

    /// The families of the cluster, IPv4 first.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        [Family::V4, Family::V6].into_iter().filter(|family| self.has_family(*family))
    }

    /// The address `offset` places into `range`, for each family of the cluster, with the range's prefix.
    pub fn numbered(&self, range: &Dual<IpNet>, offset: u32) -> Dual<IpNet> {
        let mut dual = Dual::default();
        for family in self.families() {
            let net = range.get(family);
            let address = net.and_then(|net| Some((net, nth_address(net, u128::from(offset))?)));
            if let Some(whole) = address.and_then(|(net, ip)| IpNet::new(ip, net.prefix_len()).ok()) {
                dual.set(family, whole);
            }
        }
        dual
    }

    /// The address pods see when a Service sends their traffic back to themselves: `.5` of the masquerade range.
    pub fn hairpin(&self) -> Dual<IpAddr> {
        self.numbered(&self.masquerade, 5).map(IpNet::addr)
    }

    /// The address `offset` places into the masquerade range, in both families whatever the cluster has.
    pub(crate) fn masqueraded(&self, family: Family, offset: u128) -> Option<IpAddr> {
        nth_address(self.masquerade.get(family)?, offset)
    }
}
