//! Plumbing in fresh namespaces, verified with the text of `ip` and `ethtool`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{net::IpAddr, process::Command, sync::mpsc};

use host::{
    Handle, NetNs,
    addr::{AddrFlags, Lifetime},
    attach::{PodLink, PodLinkSpec, PodPair},
    link::{LinkChange, VethEnd},
    monitor::{Event, Groups, Monitor},
    route::{NextHop, Route},
    rule::Rule,
    sysctl,
};
use nix::sched::{CloneFlags, unshare};

/// A fresh namespace for the calling thread; nextest gives every test its own process.
fn fresh() -> Handle {
    unshare(CloneFlags::CLONE_NEWNET).expect("tests of this crate need root");
    Handle::open().unwrap()
}

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn ip(args: &str) -> String {
    run("ip", &args.split(' ').collect::<Vec<_>>())
}

fn ip_in(ns: &NetNs, args: &str) -> String {
    ns.run(|| ip(args)).unwrap()
}

/// A pair `a`, `b` in the handle's namespace, both up.
fn up_pair(handle: &Handle) {
    let a = VethEnd { name: "a", up: true, ..VethEnd::default() };
    let b = VethEnd { name: "b", ..VethEnd::default() };
    handle.create_veth(&a, &b, 1500, 1000).unwrap();
    let index = handle.link("b").unwrap().unwrap().index;
    handle.set_link(index, &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
}

fn spec() -> PodLinkSpec {
    PodLinkSpec {
        pair: PodPair { host_name: "0123456789abcde".into(), pod_name: "eth0".into(), mtu: 1342 },
        mac: [0x0a, 0x58, 10, 244, 0, 7],
        addresses: vec!["10.244.0.7/24".parse().unwrap(), "fd00:10:244::7/64".parse().unwrap()],
        gateways: vec!["10.244.0.1".parse().unwrap(), "fd00:10:244::1".parse().unwrap()],
        routes: vec![
            ("10.244.0.0/16".parse().unwrap(), Some("10.244.0.1".parse().unwrap())),
            ("169.254.169.5/32".parse().unwrap(), None),
        ],
        route_mtu: Some(1300),
        disable_tx_checksum: true,
        skip_ip_config: false,
    }
}

#[test]
fn a_pod_link_has_everything_and_nothing_is_tentative() {
    let host = fresh();
    let pod = NetNs::unnamed().unwrap();
    let spec = spec();
    PodLink::create(&host, &pod, &spec.pair).unwrap();
    let link = PodLink::configure(&host, &pod, &spec).unwrap();
    let addresses = ip_in(&pod, "addr show dev eth0");
    assert!(!addresses.contains("tentative"), "{addresses}");
    assert!(addresses.contains("mtu 1342"), "{addresses}");
    assert!(addresses.contains("link/ether 0a:58:0a:f4:00:07"), "{addresses}");
    assert!(addresses.contains("inet 10.244.0.7/24 brd 10.244.0.255 scope global eth0"), "{addresses}");
    assert!(addresses.contains("inet6 fd00:10:244::7/64 scope global nodad"), "{addresses}");
    assert!(
        addresses.contains("inet6 fe80::858:aff:fef4:7/64 scope link"),
        "EUI-64 of the final MAC: {addresses}"
    );
    let routes = ip_in(&pod, "route");
    assert!(routes.contains("default via 10.244.0.1 dev eth0 proto static mtu 1300"), "{routes}");
    assert!(routes.contains("10.244.0.0/16 via 10.244.0.1 dev eth0"), "{routes}");
    assert!(routes.contains("169.254.169.5 dev eth0 proto static scope link"), "{routes}");
    assert!(ip_in(&pod, "-6 route").contains("default via fd00:10:244::1 dev eth0"));
    let offloads = pod.run(|| run("ethtool", &["-k", "eth0"])).unwrap();
    assert!(offloads.contains("tx-checksumming: off"), "{offloads}");
    let on_host = ip("link show dev 0123456789abcde");
    assert!(on_host.contains("mtu 1342") && on_host.contains(",UP"), "{on_host}");
    assert!(on_host.contains("NOARP"), "the kernel would answer the pod's ARP requests: {on_host}");
    assert!(on_host.contains(&link.host_mac.map(|b| format!("{b:02x}")).join(":")), "{on_host}");
    PodLink::check(&pod, "eth0", Some(spec.mac), &spec.addresses).unwrap();
    ip_in(&pod, "addr del 10.244.0.7/24 dev eth0");
    let missing = PodLink::check(&pod, "eth0", None, &spec.addresses).unwrap_err();
    assert!(missing.to_string().contains("10.244.0.7/24"), "{missing}");
    // A second attempt of the same sandbox replaces the first one's leftovers.
    PodLink::create(&host, &pod, &spec.pair).unwrap();
    assert!(host.delete_link_named("0123456789abcde").unwrap());
    assert!(!host.delete_link_named("0123456789abcde").unwrap());
}

#[test]
fn announcements_reach_the_other_end() {
    let host = fresh();
    let pod = NetNs::unnamed().unwrap();
    let spec = spec();
    PodLink::create(&host, &pod, &spec.pair).unwrap();
    PodLink::configure(&host, &pod, &spec).unwrap();
    let mut dump = Command::new("tcpdump")
        .args(["-i", &spec.pair.host_name, "-n", "-e", "-l", "--immediate-mode", "-c", "2"])
        .arg("arp or (icmp6 and ip6[40] = 136)")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // "listening on …" says that the capture has begun.
    let mut begun = String::new();
    let mut stderr = std::io::BufReader::new(dump.stderr.take().unwrap());
    while !begun.contains("listening") {
        assert_ne!(std::io::BufRead::read_line(&mut stderr, &mut begun).unwrap(), 0, "{begun}");
    }
    PodLink::announce(&pod, &spec).unwrap();
    let text = String::from_utf8(dump.wait_with_output().unwrap().stdout).unwrap();
    assert!(text.contains("0a:58:0a:f4:00:07 > ff:ff:ff:ff:ff:ff"), "{text}");
    assert!(text.contains("who-has 10.244.0.7") && text.contains("tell 10.244.0.7"), "{text}");
    assert!(text.contains("33:33:00:00:00:01"), "{text}");
    assert!(text.contains("neighbor advertisement, tgt is fd00:10:244::7"), "{text}");
}

#[test]
fn links_are_created_changed_and_moved() {
    let handle = fresh();
    let (a, b) = (VethEnd { name: "a", ..VethEnd::default() }, VethEnd { name: "b", ..VethEnd::default() });
    handle.create_veth(&a, &b, 1400, 500).unwrap();
    let again = handle.create_veth(&a, &b, 1400, 500).unwrap_err();
    assert!(again.is_exists() && again.to_string().contains("create veth a"), "{again}");
    let index = handle.link("a").unwrap().unwrap().index;
    let change = LinkChange {
        name: Some("renamed"),
        up: Some(true),
        mtu: Some(1300),
        mac: Some([2, 0, 0, 0, 0, 1]),
        alias: Some("of the test"),
        txqlen: Some(77),
        ..LinkChange::default()
    };
    handle.set_link(index, &change).unwrap();
    let text = ip("link show dev renamed");
    for part in ["mtu 1300", "qlen 77", "link/ether 02:00:00:00:00:01", "alias of the test", "UP"] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let read = handle.link("renamed").unwrap().unwrap();
    assert_eq!((read.mtu, read.txqlen, read.up), (1300, 77, true));
    assert_eq!(read.kind.as_deref(), Some("veth"));
    assert_eq!(read.alias.as_deref(), Some("of the test"));
    let other = NetNs::unnamed().unwrap();
    let moved = LinkChange { netns: Some(std::os::fd::AsFd::as_fd(&other)), ..LinkChange::default() };
    handle.set_link(index, &moved).unwrap();
    assert!(handle.link("renamed").unwrap().is_none());
    assert!(other.handle().unwrap().link("renamed").unwrap().is_some());
    assert!(handle.link("b").unwrap().unwrap().peer_netns.is_some());
    assert!(handle.link_by_index(9999).unwrap().is_none());
    assert!(handle.delete_link(9999).unwrap_err().is_not_found());
    assert!(handle.link("far-too-long-for-a-link").is_err());
}

#[test]
fn addresses_carry_their_flags() {
    let handle = fresh();
    ip("link set lo up");
    handle.add_address(1, "10.1.0.1/16".parse().unwrap(), AddrFlags::default()).unwrap();
    let flags = AddrFlags { nodad: true, lifetime: Lifetime::DEPRECATED, noprefixroute: true };
    handle.add_address(1, "fd00::1/64".parse().unwrap(), flags).unwrap();
    let text = ip("addr show dev lo");
    assert!(text.contains("inet 10.1.0.1/16 brd 10.1.255.255"), "{text}");
    assert!(text.contains("inet6 fd00::1/64 scope global nodad deprecated noprefixroute"), "{text}");
    let twice = handle.add_address(1, "10.1.0.1/16".parse().unwrap(), AddrFlags::default()).unwrap_err();
    assert!(twice.is_exists(), "{twice}");
    handle.replace_address(1, "fd00::1/64".parse().unwrap(), AddrFlags::default()).unwrap();
    assert!(!ip("addr show dev lo").contains("deprecated"));
    let all = handle.addresses(Some(1)).unwrap();
    assert!(all.iter().any(|a| a.net == "fd00::1/64".parse().unwrap() && !a.is_deprecated()));
    let lifetime = Lifetime { valid: Some(4000), preferred: Some(2000) };
    for net in ["10.1.0.1/16", "fd00::1/64"].map(|net| net.parse().unwrap()) {
        handle.replace_address(1, net, AddrFlags { lifetime, ..AddrFlags::default() }).unwrap();
        let all = handle.addresses(Some(1)).unwrap();
        let found = all.iter().find(|a| a.net == net).unwrap().lifetime;
        assert!(found.valid.is_some_and(|left| (1000..=4000).contains(&left)), "{net}: {found:?}");
        assert!(found.preferred.is_some_and(|left| left <= 2000), "{net}: {found:?}");
    }
    handle.delete_address(1, "10.1.0.1/16".parse().unwrap()).unwrap();
    assert!(!ip("addr show dev lo").contains("10.1.0.1"));
    assert!(handle.delete_address(1, "10.1.0.1/16".parse().unwrap()).unwrap_err().is_not_found());
}

#[test]
fn routes_rules_and_neighbours_round_trip() {
    let handle = fresh();
    up_pair(&handle);
    let a = handle.link("a").unwrap().unwrap().index;
    handle.add_address(a, "10.2.0.1/24".parse().unwrap(), AddrFlags::default()).unwrap();
    let route = Route {
        oif: Some(a),
        gateway: Some("10.2.0.9".parse().unwrap()),
        table: 1234,
        src: Some("10.2.0.1".parse().unwrap()),
        metric: Some(50),
        mtu: Some(1280),
        proto: 84,
        ..Route::to("192.0.2.0/24".parse().unwrap())
    };
    handle.replace_route(&route).unwrap();
    handle.replace_route(&route).unwrap();
    let text = ip("route show table 1234");
    assert_eq!(text.trim(), "192.0.2.0/24 via 10.2.0.9 dev a proto 84 src 10.2.0.1 metric 50 mtu 1280");
    assert_eq!(handle.routes(Some(1234)).unwrap(), std::slice::from_ref(&route));
    let two = Route {
        nexthops: ["10.2.0.8", "10.2.0.9"]
            .map(|ip| NextHop { gateway: Some(ip.parse().unwrap()), oif: Some(a), weight: 1 })
            .to_vec(),
        ..Route::to("198.51.100.0/24".parse().unwrap())
    };
    handle.replace_route(&two).unwrap();
    assert!(ip("route show 198.51.100.0/24").contains("nexthop via 10.2.0.9 dev a weight 1"));
    assert!(handle.routes(None).unwrap().iter().any(|r| r.nexthops == two.nexthops));
    handle.delete_route(&route).unwrap();
    assert!(handle.delete_route(&route).unwrap_err().is_not_found());
    let unreachable =
        Route { gateway: Some("203.0.113.1".parse().unwrap()), ..Route::to("1.2.3.0/24".parse().unwrap()) };
    let refused = handle.replace_route(&unreachable).unwrap_err().to_string();
    assert!(refused.contains("1.2.3.0/24") && refused.contains("invalid gateway"), "{refused}");

    let rule = Rule {
        priority: 5999,
        src: Some("10.2.0.0/24".parse().unwrap()),
        fwmark: Some(0x1745ec),
        table: 1234,
        proto: Some(84),
        ..Rule::default()
    };
    handle.add_rule(&rule).unwrap();
    assert!(handle.add_rule(&rule).unwrap_err().is_exists());
    assert!(
        ip("rule").contains("5999:\tfrom 10.2.0.0/24 fwmark 0x1745ec lookup 1234 proto 84"),
        "{}",
        ip("rule")
    );
    assert!(handle.rules().unwrap().contains(&rule), "{:?}", handle.rules().unwrap());
    let rule6 = Rule { v6: true, src: Some("fd00::/64".parse().unwrap()), ..rule.clone() };
    handle.add_rule(&rule6).unwrap();
    assert!(ip("-6 rule").contains("from fd00::/64"));
    handle.delete_rule(&rule).unwrap();
    assert!(!ip("rule").contains("5999"));

    let peer: IpAddr = "10.2.0.9".parse().unwrap();
    handle.replace_neighbour(a, peer, [2, 0, 0, 0, 0, 9]).unwrap();
    assert!(ip("neigh show dev a").contains("10.2.0.9 lladdr 02:00:00:00:00:09 PERMANENT"));
    assert!(handle.neighbours(Some(a)).unwrap().iter().any(|n| n.ip == peer && n.permanent));
    handle.delete_neighbour(a, peer).unwrap();
    assert!(!ip("neigh show dev a").contains("02:00:00:00:00:09"));
}

#[test]
fn namespaces_are_entered_on_other_threads_only() {
    let handle = fresh();
    let here = NetNs::current().unwrap().inode().unwrap();
    let other = NetNs::unnamed().unwrap();
    other.run(|| sysctl::set(&["net", "ipv4", "ip_forward"], "1")).unwrap().unwrap();
    assert_eq!(other.run(|| NetNs::current().unwrap().inode().unwrap()).unwrap(), other.inode().unwrap());
    assert_eq!(NetNs::current().unwrap().inode().unwrap(), here);
    assert_eq!(sysctl::get(&["net", "ipv4", "ip_forward"]).unwrap(), "0");
    assert!(sysctl::ensure(&["net", "ipv4", "ip_forward"], "1").unwrap());
    assert!(!sysctl::ensure(&["net", "ipv4", "ip_forward"], "1").unwrap());
    assert_eq!(handle.links().unwrap().iter().filter(|l| l.name == "lo").count(), 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ns");
    let bound = NetNs::bound(&path).unwrap();
    assert_eq!(NetNs::open(&path).unwrap().inode().unwrap(), bound.inode().unwrap());
    NetNs::unbind(&path).unwrap();
    NetNs::unbind(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    let error = NetNs::open(&path).unwrap_err();
    assert!(error.is_not_found() && error.to_string().contains("not a network namespace"), "{error}");
}

#[test]
fn notifications_arrive_in_order() {
    let handle = fresh();
    let mut monitor = Monitor::open(Groups { links: true, addresses: true, routes: true }).unwrap();
    assert!(monitor.try_read().unwrap().is_none());
    let (sender, events) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(batch) = monitor.wait() {
            for event in batch {
                if sender.send(event).is_err() {
                    return;
                }
            }
        }
    });
    up_pair(&handle);
    let index = handle.link("a").unwrap().unwrap().index;
    handle.add_address(index, "10.3.0.1/24".parse().unwrap(), AddrFlags::default()).unwrap();
    handle.delete_link(index).unwrap();
    let wanted: [fn(&Event) -> bool; 4] = [
        |e| matches!(e, Event::Link(l) if l.name == "a"),
        |e| matches!(e, Event::Address(a) if a.net.to_string() == "10.3.0.1/24"),
        |e| matches!(e, Event::Route(r) if r.dst.to_string() == "10.3.0.0/24"),
        |e| matches!(e, Event::LinkGone(l) if l.name == "a"),
    ];
    for want in wanted {
        while !want(&events.recv_timeout(std::time::Duration::from_secs(10)).expect("an event is missing")) {}
    }
}

#[test]
fn tracked_connections_are_listed_and_forgotten_one_by_one() {
    let handle = fresh();
    ip("link set lo up");
    // Tracking starts with the first rule that needs it.
    let rules = "table ip t {\nchain c {\ntype nat hook output priority -100\nip daddr 127.0.0.9 udp dport 53 dnat to 127.0.0.1:5353\n}\n}\n";
    let mut nft = Command::new("nft");
    let output = nft.arg(rules).output().expect("nft runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(handle);
    let server = std::net::UdpSocket::bind("127.0.0.1:5353").expect("a socket");
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let from = client.local_addr().expect("an address");
    client.send_to(b"?", "127.0.0.9:53").expect("sent");
    client.send_to(b"?", "127.0.0.1:5353").expect("sent");
    server.recv(&mut [0; 8]).expect("received");
    let conntrack = host::conntrack::Conntrack::open().expect("a socket");
    let all = conntrack.connections().expect("a list");
    let to = |ip: &str| -> std::net::SocketAddr { ip.parse().expect("an address") };
    let translated = all.iter().find(|one| one.orig.dst == to("127.0.0.9:53")).expect("tracked");
    assert_eq!((translated.orig.src, translated.reply.src), (from, to("127.0.0.1:5353")));
    assert_eq!((translated.orig.protocol, translated.zone), (17, 0));
    conntrack.forget(translated).expect("forgotten");
    conntrack.forget(translated).expect("gone already");
    let left = conntrack.matching(|one| one.orig.src == from).expect("a list");
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].orig.dst, to("127.0.0.1:5353"), "the other one stays");
}
