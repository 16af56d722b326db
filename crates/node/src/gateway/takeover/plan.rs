//! What to do next, from what there is.

use super::{Device, Saved, Side, Step, View};

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Do this, and look again.
    Do(Vec<Step>),
    /// Somebody else has to act first.
    Wait(&'static str),
    /// Nothing is left to do.
    Done,
}

/// The next steps of the move to the bridge.
pub fn next(view: &View) -> Next {
    let row = view.row.as_ref();
    let Some(saved) = row.and_then(|row| row.saved.as_ref()) else {
        if row.is_some_and(|row| row.has_card) && view.card.addresses.is_empty() {
            return Next::Done;
        }
        return Next::Do(vec![Step::Save(save(view))]);
    };
    let Some(bridge) = &view.bridge else { return Next::Wait("ovs-vswitchd to make the bridge's interface") };
    let mut steps = Vec::new();
    if !bridge.up {
        steps.push(Step::Up(Side::Bridge));
    }
    copy(&mut steps, Side::Bridge, bridge, &view.card, saved);
    let Some(row) = row.filter(|row| row.has_card) else {
        steps.push(Step::Attach);
        return Next::Do(steps);
    };
    if !view.card.up {
        steps.push(Step::Up(Side::Card));
    }
    if !row.card_attached {
        return match steps.is_empty() {
            true => Next::Wait("ovs-vswitchd to take the network card"),
            false => Next::Do(steps),
        };
    }
    let missing =
        saved.routes.iter().filter(|route| !bridge.routes.iter().any(|there| there.same_way(route)));
    steps.extend(missing.cloned().map(|route| Step::MoveRoute(Side::Bridge, route)));
    leave(&mut steps, Side::Card, &view.card, saved);
    if steps.is_empty() {
        // Only once all of it was seen to be in place.
        steps.push(Step::Forget);
    }
    Next::Do(steps)
}

/// The steps back: everything on the card again, and no bridge.
pub fn undo(view: &View) -> Vec<Step> {
    let Some(bridge) = &view.bridge else {
        return view.row.iter().map(|_| Step::RemoveBridge).collect();
    };
    let there = Saved {
        card: view.card_name.clone(),
        mac: view.mac,
        addresses: bridge.addresses.clone(),
        routes: bridge.routes.clone(),
        neighbours: bridge.neighbours.clone(),
    };
    let mut steps = Vec::new();
    if !view.card.up {
        steps.push(Step::Up(Side::Card));
    }
    copy(&mut steps, Side::Card, &view.card, bridge, &there);
    steps.extend(there.routes.into_iter().map(|route| Step::MoveRoute(Side::Card, route)));
    steps.push(Step::RemoveBridge);
    steps
}

fn save(view: &View) -> Saved {
    let mut routes = view.card.routes.clone();
    // A next hop can be named once the route to it is there.
    routes.sort_by_key(|route| route.gateway.is_some() || !route.hops.is_empty());
    Saved {
        card: view.card_name.clone(),
        mac: view.mac,
        addresses: view.card.addresses.clone(),
        routes,
        neighbours: view.card.neighbours.clone(),
    }
}

fn copy(steps: &mut Vec<Step>, side: Side, to: &Device, from: &Device, saved: &Saved) {
    for saved in &saved.addresses {
        // Time has passed since it was written down.
        let newest = from.address(&saved.net).unwrap_or(saved);
        if to.address(&saved.net).is_none_or(|there| newest.outlives(there)) {
            steps.push(Step::AddAddress(side, newest.clone()));
        }
    }
    let missing = saved.neighbours.iter().filter(|neighbour| !to.neighbours.contains(neighbour));
    steps.extend(missing.map(|(ip, mac)| Step::AddNeighbour(side, *ip, *mac)));
}

fn leave(steps: &mut Vec<Step>, side: Side, device: &Device, saved: &Saved) {
    // What the kernel replaced in place is gone already; of IPv6 it may keep both.
    let left = device.routes.iter().filter(|route| saved.routes.iter().any(|moved| moved.same_place(route)));
    steps.extend(left.cloned().map(|route| Step::RemoveRoute(side, route)));
    let saved_nets = || saved.addresses.iter().map(|address| address.net);
    let left = device.addresses.iter().filter(|address| saved_nets().any(|net| net == address.net));
    steps.extend(left.map(|address| Step::RemoveAddress(side, address.net)));
    let left = device.neighbours.iter().filter(|neighbour| saved.neighbours.contains(neighbour));
    steps.extend(left.map(|(ip, _)| Step::RemoveNeighbour(side, *ip)));
}

#[cfg(test)]
mod tests {
    use super::super::{Address, BridgeRow, Route};
    use super::*;

    fn route(dst: &str, gateway: Option<&str>) -> Route {
        Route {
            dst: dst.parse().unwrap(),
            gateway: gateway.map(|ip| ip.parse().unwrap()),
            hops: vec![],
            src: None,
            metric: None,
            mtu: None,
            table: 254,
            proto: 3,
            onlink: false,
        }
    }

    fn address(net: &str, valid: Option<u32>) -> Address {
        Address { net: net.parse().unwrap(), valid, preferred: valid, noprefixroute: false }
    }

    fn plain_card() -> View {
        View {
            card_name: "eth0".into(),
            mac: "02:42:ac:12:00:01".parse().unwrap(),
            card: Device {
                index: 1,
                up: true,
                addresses: vec![address("172.18.0.1/24", None), address("172.18.0.7/24", Some(600))],
                routes: vec![route("0.0.0.0/0", Some("172.18.0.254")), route("10.9.0.0/16", None)],
                neighbours: vec![],
            },
            row: None,
            bridge: None,
        }
    }

    fn device(view: &mut View, side: Side) -> &mut Device {
        match side {
            Side::Card => &mut view.card,
            Side::Bridge => view.bridge.as_mut().unwrap(),
        }
    }

    /// What kernel and switch make of a step. `None` when the node could not be reached any more.
    fn perform(view: &mut View, step: &Step) {
        match step.clone() {
            Step::Save(saved) => {
                let fresh = BridgeRow { has_card: false, card_attached: false, saved: None };
                view.row.get_or_insert(fresh).saved = Some(saved);
                view.bridge.get_or_insert(Device { index: 2, ..Device::default() });
            }
            Step::Up(side) => device(view, side).up = true,
            Step::AddAddress(side, address) => {
                let addresses = &mut device(view, side).addresses;
                addresses.retain(|there| there.net != address.net);
                addresses.push(address);
            }
            Step::AddNeighbour(side, ip, mac) => device(view, side).neighbours.push((ip, mac)),
            Step::Attach => {
                let row = view.row.as_mut().unwrap();
                (row.has_card, row.card_attached) = (true, true);
            }
            Step::MoveRoute(side, route) => {
                for one in [Side::Card, Side::Bridge] {
                    device(view, one).routes.retain(|there| !there.same_place(&route));
                }
                device(view, side).routes.push(route);
            }
            Step::RemoveRoute(side, route) => device(view, side).routes.retain(|there| *there != route),
            Step::RemoveAddress(side, net) => {
                device(view, side).addresses.retain(|there| there.net != net);
            }
            Step::RemoveNeighbour(side, ip) => device(view, side).neighbours.retain(|there| there.0 != ip),
            Step::Forget => view.row.as_mut().unwrap().saved = None,
            Step::RemoveBridge => (view.row, view.bridge) = (None, None),
        }
    }

    fn reachable(view: &View) -> bool {
        let bridge = view.bridge.clone().unwrap_or_default();
        let attached = view.row.as_ref().is_some_and(|row| row.card_attached);
        let address = |device: &Device| device.addresses.contains(&plain_card().card.addresses[0]);
        let default = |device: &Device| device.routes.iter().any(|route| route.dst.prefix_len() == 0);
        let receives = if attached { bridge.up && address(&bridge) } else { address(&view.card) };
        receives && (default(&view.card) || default(&bridge))
    }

    /// Runs to the end, or for so many steps.
    fn drive(view: &mut View, limit: usize) -> usize {
        let mut done = 0;
        while let Next::Do(steps) = next(view) {
            for step in steps {
                if done == limit {
                    return done;
                }
                perform(view, &step);
                assert!(reachable(view), "after {step:?}: {view:?}");
                done += 1;
            }
        }
        done
    }

    fn assert_moved(view: &View) {
        let (before, bridge) = (plain_card().card, view.bridge.clone().unwrap());
        assert_eq!(bridge.addresses, before.addresses);
        assert_eq!(bridge.routes.len(), before.routes.len());
        assert!(view.card.addresses.is_empty() && view.card.routes.is_empty(), "{view:?}");
        assert_eq!(view.row.as_ref().unwrap().saved, None);
    }

    #[test]
    fn the_node_can_be_reached_after_every_step_and_a_crash_anywhere_changes_nothing() {
        let mut view = plain_card();
        let all = drive(&mut view, usize::MAX);
        assert_moved(&view);
        assert_eq!(next(&view), Next::Done, "a second start changes nothing");
        for crash in 0..all {
            let mut view = plain_card();
            drive(&mut view, crash);
            drive(&mut view, usize::MAX);
            assert_moved(&view);
        }
    }

    #[test]
    fn nothing_is_taken_from_the_card_before_the_switch_has_it() {
        let mut view = plain_card();
        drive(&mut view, usize::MAX);
        let mut waiting = plain_card();
        let Next::Do(steps) = next(&waiting) else { panic!() };
        perform(&mut waiting, &steps[0]);
        waiting.bridge = None;
        assert!(matches!(next(&waiting), Next::Wait(_)), "the interface");
        waiting.bridge = Some(Device { up: true, ..plain_card().card });
        assert_eq!(next(&waiting), Next::Do(vec![Step::Attach]));
        waiting.row.as_mut().unwrap().has_card = true;
        assert!(matches!(next(&waiting), Next::Wait(_)), "the port");
    }

    #[test]
    fn a_bridge_that_lost_its_card_in_a_reboot_gets_it_back() {
        let mut view = plain_card();
        view.row = Some(BridgeRow { has_card: false, card_attached: false, saved: None });
        view.bridge = Some(Device::default());
        drive(&mut view, usize::MAX);
        assert_moved(&view);
    }

    #[test]
    fn a_start_after_an_undo_that_was_broken_off_moves_everything_again() {
        let mut moved = plain_card();
        drive(&mut moved, usize::MAX);
        let all = undo(&moved).len();
        assert!(all > 4);
        for crash in 0..all {
            let mut view = moved.clone();
            for step in undo(&view).iter().take(crash) {
                perform(&mut view, step);
            }
            drive(&mut view, usize::MAX);
            assert_moved(&view);
        }
    }

    #[test]
    fn an_address_renewed_on_the_card_lasts_longer_on_the_bridge() {
        let mut view = plain_card();
        drive(&mut view, usize::MAX);
        view.bridge.as_mut().unwrap().addresses[1].valid = Some(100);
        view.card.addresses = vec![address("172.18.0.7/24", Some(600))];
        drive(&mut view, usize::MAX);
        assert_moved(&view);
        view.card.addresses = vec![address("172.18.0.1/24", Some(600))];
        drive(&mut view, usize::MAX);
        assert_eq!(view.bridge.unwrap().addresses[0].valid, None, "what lasts for ever keeps doing so");
    }

    #[test]
    fn undone_the_card_has_everything_again() {
        let mut view = plain_card();
        drive(&mut view, usize::MAX);
        for step in undo(&view) {
            perform(&mut view, &step);
        }
        let before = plain_card();
        assert_eq!((&view.card.addresses, view.row.as_ref()), (&before.card.addresses, None));
        assert_eq!(view.card.routes.len(), before.card.routes.len());
        assert_eq!(undo(&view), []);
    }
}
