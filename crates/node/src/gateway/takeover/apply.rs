//! Looks and acts, one step at a time.

use std::net::IpAddr;

use ::host::addr::{AddrFlags, Lifetime};
use ::host::link::{Link, LinkChange};
use ::host::{Error, Handle, route};
use ipnet::IpNet;
use net::Mac;
use ovsdb::{Cache, Replica};
use tracing::info;

use super::{Address, Device, Hop, Route, Side, Step, View, bridge_name};
use crate::addresses::is_usable;
use crate::error::NodeError;
use crate::fault::Job;
use crate::host_plan::gone;
use crate::ovs;
use crate::settings::Settings;

/// Routes the kernel makes for an address, and takes away with it.
const KERNEL: u8 = 2;
/// The table of the host's own addresses.
const TABLE_LOCAL: u32 = 255;
/// Ordinary routes.
const UNICAST: u8 = 1;

/// What there is about a card and the bridge made for it; none if the card does not exist. `handle` belongs to the
/// namespace of the node.
pub fn observe(replica: &Replica, handle: &Handle, card: &str) -> Result<Option<View>, NodeError> {
    look(replica, handle, card, &[])
}

/// The same for the way back: our own addresses, and what leads to them, are left out.
pub fn observe_undo(
    replica: &Replica,
    handle: &Handle,
    card: &str,
    settings: &Settings,
) -> Result<Option<View>, NodeError> {
    let ours: [IpNet; 2] = [settings.gateway.masquerade_v4.into(), settings.gateway.masquerade_v6.into()];
    look(replica, handle, card, &ours)
}

fn look(replica: &Replica, handle: &Handle, card: &str, except: &[IpNet]) -> Result<Option<View>, NodeError> {
    let failed = |error: Error| NodeError::Host {
        what: format!("read interface {card} and its bridge"),
        reason: error.to_string(),
    };
    let Some(name) = bridge_name(card) else {
        return Err(NodeError::Host {
            what: format!("make a bridge for interface {card}"),
            reason: "br and the interface's name have more than 15 characters; make the bridge yourself, and name it \
                     with --gateway-interface"
                .to_owned(),
        });
    };
    let Some(link) = handle.link(card).map_err(failed)? else { return Ok(None) };
    let Some(mac) = link.mac else { return Ok(None) };
    let bridge = handle.link(&name).map_err(failed)?;
    let bridge = bridge.map(|link| device(handle, &link, except)).transpose().map_err(failed)?;
    Ok(Some(View {
        card_name: card.to_owned(),
        mac: Mac(mac),
        card: device(handle, &link, except).map_err(failed)?,
        row: replica.read(|cache| ovs::takeover_row(cache, &name, card)),
        bridge,
    }))
}

fn device(handle: &Handle, link: &Link, except: &[IpNet]) -> Result<Device, Error> {
    let ours = |ip: IpAddr| except.iter().any(|range| range.contains(&ip));
    let addresses = handle.addresses(Some(link.index))?;
    let addresses: Vec<Address> = addresses
        .iter()
        .filter(|a| a.index == link.index && is_usable(a.net.addr()) && !ours(a.net.addr()))
        .map(|a| Address {
            net: a.net,
            valid: a.lifetime.valid,
            preferred: a.lifetime.preferred,
            noprefixroute: a.has_no_prefix_route(),
        })
        .collect();
    // Network managers make the routes of prefixes themselves, in the kernel's name.
    let own_prefix = |dst: &IpNet| addresses.iter().any(|a| a.noprefixroute && a.net.trunc() == *dst);
    let links = handle.links()?;
    let routes = handle.routes(None)?;
    let routes = routes.iter().filter(|r| {
        let through = r.oif == Some(link.index) || r.nexthops.iter().any(|hop| hop.oif == Some(link.index));
        let somebodys = r.proto != KERNEL || own_prefix(&r.dst);
        through && r.kind == UNICAST && somebodys && is_own_business(&r.dst) && r.table != TABLE_LOCAL
    });
    let neighbours = handle.neighbours(Some(link.index))?;
    let neighbours = neighbours.iter().filter(|n| n.permanent && !n.ip.is_multicast() && !ours(n.ip));
    Ok(Device {
        index: link.index,
        up: link.up,
        routes: routes.filter(|r| !leads_to(r, &ours)).map(|r| saved_route(r, link.index, &links)).collect(),
        addresses,
        neighbours: neighbours.filter_map(|n| Some((n.ip, Mac(n.mac?)))).collect(),
    })
}

/// Whether a route's next hop, or its only destination, is one of those.
fn leads_to(route: &route::Route, those: &impl Fn(IpAddr) -> bool) -> bool {
    let single = route.dst.prefix_len() == route.dst.max_prefix_len();
    route.gateway.is_some_and(those) || (single && those(route.dst.addr()))
}

/// Whether a route leads further than the link itself.
fn is_own_business(dst: &IpNet) -> bool {
    dst.prefix_len() == 0 || is_usable(dst.addr())
}

fn saved_route(route: &route::Route, index: u32, links: &[Link]) -> Route {
    let name = |oif: Option<u32>| links.iter().find(|link| Some(link.index) == oif).map(|l| l.name.clone());
    let hop = |hop: &route::NextHop| Hop {
        gateway: hop.gateway,
        other: if hop.oif == Some(index) { None } else { name(hop.oif) },
        weight: hop.weight,
    };
    Route {
        hops: route.nexthops.iter().map(hop).collect(),
        dst: route.dst,
        gateway: route.gateway,
        src: route.src,
        metric: route.metric,
        mtu: route.mtu,
        table: route.table,
        proto: route.proto,
        onlink: route.onlink,
    }
}

fn kernel_route(handle: &Handle, route: &Route, index: u32, proto: u8) -> Result<route::Route, Error> {
    let mut nexthops = Vec::new();
    for hop in &route.hops {
        let oif = match &hop.other {
            None => index,
            // An interface that has gone since takes its ways with it.
            Some(name) => match handle.link(name)? {
                Some(link) => link.index,
                None => continue,
            },
        };
        nexthops.push(route::NextHop { gateway: hop.gateway, oif: Some(oif), weight: hop.weight });
    }
    Ok(route::Route {
        gateway: route.gateway,
        src: route.src,
        metric: route.metric,
        mtu: route.mtu,
        table: route.table,
        proto,
        onlink: route.onlink,
        oif: nexthops.is_empty().then_some(index),
        nexthops,
        ..route::Route::to(route.dst)
    })
}

/// Does one step.
pub async fn apply(replica: &Replica, handle: &Handle, view: &View, step: &Step) -> Result<(), NodeError> {
    let card = &view.card_name;
    let name = bridge_name(card).unwrap_or_default();
    let ops = replica.read(|cache| match step {
        Step::Save(saved) => Some(ovs::save_takeover(cache, &name, saved)),
        Step::Attach => Some(ovs::attach_card(cache, &name, card)),
        Step::Forget => Some(ovs::forget_takeover(cache, &name)),
        Step::RemoveBridge => Some(ovs::remove_bridge(cache, &name)),
        _ => None,
    });
    let what = describe(card, &name, step);
    match ops {
        Some(ops) if ops.is_empty() => return Ok(()),
        Some(ops) => {
            let written = replica.transact(ops).await;
            written.map_err(|error| NodeError::Ovs {
                what: "set up the gateway bridge",
                reason: format!("{what}: {error}"),
            })?;
        }
        None => {
            let failed = |error: Error| NodeError::Host { what: what.clone(), reason: error.to_string() };
            on_host(handle, view, step).map_err(failed)?;
        }
    }
    info!("{what}");
    Ok(())
}

fn on_host(handle: &Handle, view: &View, step: &Step) -> Result<(), Error> {
    let index = |side: &Side| match side {
        Side::Card => Ok(view.card.index),
        Side::Bridge => view
            .bridge
            .as_ref()
            .map(|bridge| bridge.index)
            .ok_or_else(|| Error::NoLink(bridge_name(&view.card_name).unwrap_or_default())),
    };
    match step {
        Step::Up(side) => {
            handle.set_link(index(side)?, &LinkChange { up: Some(true), ..LinkChange::default() })
        }
        Step::AddAddress(side, address) => {
            let lifetime = Lifetime { valid: address.valid, preferred: address.preferred };
            let flags = AddrFlags { nodad: true, lifetime, noprefixroute: address.noprefixroute };
            handle.replace_address(index(side)?, address.net, flags)
        }
        Step::AddNeighbour(side, ip, mac) => handle.replace_neighbour(index(side)?, *ip, mac.0),
        Step::MoveRoute(side, route) => {
            handle.replace_route(&kernel_route(handle, route, index(side)?, route.proto)?)
        }
        Step::RemoveRoute(side, route) => {
            gone(handle.delete_route(&kernel_route(handle, route, index(side)?, 0)?))
        }
        Step::RemoveAddress(side, net) => gone(handle.delete_address(index(side)?, *net)),
        Step::RemoveNeighbour(side, ip) => gone(handle.delete_neighbour(index(side)?, *ip)),
        Step::Save(_) | Step::Attach | Step::Forget | Step::RemoveBridge => Ok(()),
    }
}

fn describe(card: &str, bridge: &str, step: &Step) -> String {
    let on = |side: &Side| match side {
        Side::Card => card.to_owned(),
        Side::Bridge => bridge.to_owned(),
    };
    match step {
        Step::Save(_) => format!("make bridge {bridge} for {card}"),
        Step::Up(side) => format!("set {} up", on(side)),
        Step::AddAddress(side, address) => format!("add address {} to {}", address.net, on(side)),
        Step::AddNeighbour(side, ip, _) => format!("add neighbour {ip} to {}", on(side)),
        Step::Attach => format!("make {card} a port of {bridge}"),
        Step::MoveRoute(side, route) => format!("move route {} to {}", route.dst, on(side)),
        Step::RemoveRoute(side, route) => format!("remove route {} from {}", route.dst, on(side)),
        Step::RemoveAddress(side, net) => format!("remove address {net} from {}", on(side)),
        Step::RemoveNeighbour(side, ip) => format!("remove neighbour {ip} from {}", on(side)),
        Step::Forget => format!("finish the move from {card} to {bridge}"),
        Step::RemoveBridge => format!("remove bridge {bridge}"),
    }
}

/// Undoes the move of whatever card a bridge of ours has: the card gets everything back, and the bridge goes.
pub async fn take_back(replica: &Replica, handle: &Handle, settings: &Settings) -> Result<(), NodeError> {
    for card in replica.read(taken_cards) {
        let Some(view) = observe_undo(replica, handle, &card, settings)? else { continue };
        for step in super::undo(&view) {
            settings.before_step_of(Job::Undo);
            apply(replica, handle, &view, &step).await?;
        }
    }
    Ok(())
}

/// Cards whose bridge was made by us, or by the reference.
pub(crate) fn taken_cards(cache: &Cache) -> Vec<String> {
    cache
        .rows("Bridge")
        .filter_map(|row| {
            let card = row.key("external_ids", "bridge-uplink")?;
            let name = row.str("name")?;
            let ours = row.key("external_ids", "bridge-id") == Some(name);
            (ours && bridge_name(card).as_deref() == Some(name)).then(|| card.to_owned())
        })
        .collect()
}
