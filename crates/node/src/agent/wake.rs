//! Which changes of the Open_vSwitch database wake the agent. Pods come and go on the integration bridge all the
//! time; the agent looks at the few rows it plans from.

use std::sync::Arc;

use ovsdb::{Cache, Replica, Row};
use tokio::sync::Notify;

use crate::gateway::takeover::{BridgeRow, bridge_name};
use crate::mgmt_port;
use crate::ovs::{self, PortView};
use crate::uplink::Bridge;

/// The part of the database that planning depends on.
#[derive(PartialEq)]
struct Relevant {
    root: Option<Arc<Row>>,
    userspace: bool,
    bridge_exists: bool,
    interface: Option<Arc<Row>>,
    attached: bool,
    legacy: bool,
    bridges: Vec<Bridge>,
    /// Ports of the bridges to the outside.
    gateways: Vec<PortView>,
    /// Whether the switch has taken the card that is being moved.
    takeover: Option<Option<BridgeRow>>,
}

impl Relevant {
    fn of(cache: &Cache, node: &str) -> Relevant {
        let named =
            |table: &str, name: &str| cache.table(table).and_then(|t| t.find_one("name", name)).cloned();
        let bridge = named("Bridge", ovs::INTEGRATION_BRIDGE);
        let port = named("Port", mgmt_port::NAME);
        let attached = bridge.as_ref().zip(port).is_some_and(|(bridge, port)| {
            bridge.get("ports").is_some_and(|ports| ports.contains(&port.uuid().into()))
        });
        Relevant {
            root: ovs::root(cache).cloned(),
            userspace: ovs::userspace_datapath(cache),
            bridge_exists: bridge.is_some(),
            interface: named("Interface", mgmt_port::NAME),
            attached,
            legacy: named("Port", &mgmt_port::legacy_name(node)).is_some(),
            bridges: ovs::other_bridges(cache),
            gateways: [ovs::PHYSICAL_NETWORK, ovs::EXTERNAL_NETWORK]
                .into_iter()
                .filter_map(|network| ovs::mapped_bridge(ovs::root(cache)?, network))
                .map(|bridge| ovs::ports(cache, bridge, node))
                .collect(),
            takeover: ovs::unfinished_takeover(cache)
                .map(|card| bridge_name(&card).and_then(|bridge| ovs::takeover_row(cache, &bridge, &card))),
        }
    }
}

/// Wakes the agent on each relevant change of content or connection; never ends.
pub(super) async fn follow_ovs(replica: &Replica, node: &str, wake: &Notify) {
    let mut last = None;
    replica
        .wait_for(|cache| {
            let now = (replica.is_up(), Relevant::of(cache, node));
            if last.as_ref() != Some(&now) {
                last = Some(now);
                wake.notify_one();
            }
            None::<()>
        })
        .await;
}
