//! The rows of a bridge that takes over a network card.

use std::collections::BTreeMap;

use ovsdb::{Cache, Datum, Mutation, Op, Row, Uuid};

use super::{edit_map, mutate, named, root};
use crate::gateway::takeover::{BridgeRow, SAVED, Saved};

/// What the bridge's row says; none if there is no such bridge.
pub(crate) fn takeover_row(cache: &Cache, bridge: &str, card: &str) -> Option<BridgeRow> {
    let row = named(cache, "Bridge", bridge)?;
    let has_card = named(cache, "Port", card).is_some_and(|port| holds(row, port.uuid()));
    let ofport = named(cache, "Interface", card).and_then(|interface| interface.get("ofport")?.as_int());
    let saved = row.key("external_ids", SAVED).and_then(|text| serde_json::from_str(text).ok());
    Some(BridgeRow { has_card, card_attached: has_card && ofport.is_some_and(|port| port > 0), saved })
}

/// The card whose move has begun and not ended, if there is one.
pub(crate) fn unfinished_takeover(cache: &Cache) -> Option<String> {
    let saved = cache
        .rows("Bridge")
        .find_map(|row| serde_json::from_str::<Saved>(row.key("external_ids", SAVED)?).ok())?;
    Some(saved.card)
}

fn holds(bridge: &Row, port: Uuid) -> bool {
    bridge.get("ports").is_some_and(|ports| ports.contains(&port.into()))
}

/// Makes the bridge where there is none, and writes down what is about to be moved.
pub(crate) fn save_takeover(cache: &Cache, bridge: &str, saved: &Saved) -> Vec<Op> {
    let Some(root) = root(cache) else { return Vec::new() };
    let text = serde_json::to_string(saved).unwrap_or_default();
    let ids = BTreeMap::from([
        ("bridge-id".to_owned(), bridge.to_owned()),
        ("bridge-uplink".to_owned(), saved.card.clone()),
        (SAVED.to_owned(), text),
    ]);
    let mac = saved.mac.to_string();
    if let Some(row) = named(cache, "Bridge", bridge) {
        let ids: Vec<_> = ids.into_iter().map(|(key, value)| (key, Some(value))).collect();
        let mut mutations = edit_map(row, "external_ids", &ids);
        mutations.extend(edit_map(row, "other_config", &[("hwaddr".to_owned(), Some(mac))]));
        return mutate("Bridge", row, mutations).into_iter().collect();
    }
    let id = |kind: &str| Uuid::v5(&root.uuid(), format!("{kind} {bridge}").as_bytes());
    let mut row = vec![
        ("name".into(), bridge.into()),
        ("ports".into(), Datum::set([id("Port")])),
        ("fail_mode".into(), "standalone".into()),
        ("external_ids".into(), Datum::map(ids)),
        ("other_config".into(), Datum::map([("hwaddr", mac.as_str())])),
    ];
    if let Some(datapath) = root.key("external_ids", "ovn-bridge-datapath-type") {
        row.push(("datapath_type".into(), datapath.into()));
    }
    vec![
        Op::insert(
            "Interface",
            id("Interface"),
            vec![("name".into(), bridge.into()), ("type".into(), "internal".into())],
        ),
        Op::insert(
            "Port",
            id("Port"),
            vec![("name".into(), bridge.into()), ("interfaces".into(), Datum::set([id("Interface")]))],
        ),
        Op::insert("Bridge", id("Bridge"), row),
        Op::mutate(
            "Open_vSwitch",
            root.uuid(),
            vec![Mutation::insert("bridges", Datum::set([id("Bridge")]))],
        ),
    ]
}

/// Makes the card a port of the bridge.
pub(crate) fn attach_card(cache: &Cache, bridge: &str, card: &str) -> Vec<Op> {
    let Some(row) = named(cache, "Bridge", bridge) else { return Vec::new() };
    let attach =
        |port: Uuid| Op::mutate("Bridge", row.uuid(), vec![Mutation::insert("ports", Datum::set([port]))]);
    if let Some(port) = named(cache, "Port", card) {
        return if holds(row, port.uuid()) { Vec::new() } else { vec![attach(port.uuid())] };
    }
    let id = |kind: &str| Uuid::v5(&row.uuid(), format!("{kind} {card}").as_bytes());
    vec![
        Op::insert("Interface", id("Interface"), vec![("name".into(), card.into())]),
        Op::insert(
            "Port",
            id("Port"),
            vec![
                ("name".into(), card.into()),
                ("interfaces".into(), Datum::set([id("Interface")])),
                // The start scripts of Open vSwitch take such ports off after a reboot: the card then has its addresses
                // from the distribution's set-up until we come and move them again.
                ("other_config".into(), Datum::map([("transient", "true")])),
            ],
        ),
        attach(id("Port")),
    ]
}

/// Removes what was written down.
pub(crate) fn forget_takeover(cache: &Cache, bridge: &str) -> Vec<Op> {
    let Some(row) = named(cache, "Bridge", bridge) else { return Vec::new() };
    let mutations = edit_map(row, "external_ids", &[(SAVED.to_owned(), None)]);
    mutate("Bridge", row, mutations).into_iter().collect()
}

/// Removes a bridge with its ports.
pub(crate) fn remove_bridge(cache: &Cache, bridge: &str) -> Vec<Op> {
    let (Some(root), Some(row)) = (root(cache), named(cache, "Bridge", bridge)) else { return Vec::new() };
    vec![Op::mutate("Open_vSwitch", root.uuid(), vec![Mutation::delete("bridges", Datum::set([row.uuid()]))])]
}
