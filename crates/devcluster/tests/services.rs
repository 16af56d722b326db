//! Services with real packets: from every place to every address, in both gateway modes and both families.

#[path = "common/calls.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod calls;
#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context, Result, ensure};
use calls::{Got, PROTOCOLS, Place, Site, client, on_underlay, outside, route, server};
use devcluster::{AgentOptions, ApiChoice, Cluster, Families, Stack};
use lab::{addresses, run};
use serde_json::{Value, json};

/// Addresses that a load balancer or an administrator leads to the nodes; the number tells services apart.
fn external(net: u8, number: u8) -> Vec<IpAddr> {
    let v4 = if net == 203 { [203, 0, 113, number] } else { [198, 51, 100, number] };
    vec![v4.into(), [0xfd00, u16::from(net), 0, 0, 0, 0, 0, u16::from(number)].into()]
}

/// The five places that ask.
const PLACES: [&str; 5] = ["pod1", "pod2", "node1", "node2", "outside"];

/// What a client should see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Its own address.
    Own,
    /// That of the gateway router of a node.
    Router(u8),
    /// That of a node.
    Node(u8),
    /// That of a node's management port.
    Port(u8),
    /// What it is depends on which endpoint was chosen.
    Any,
}

/// What asking should lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expected {
    /// Exactly these servers answer, and see this.
    Answers(&'static [&'static str], Seen),
    /// It is refused at once.
    Refused,
    /// Nobody answers: a load balancer that asks for the node's health sends nothing there.
    Unanswered,
}

use Expected::{Answers, Refused, Unanswered};

/// One service with the addresses it has.
struct Served {
    name: &'static str,
    targets: Vec<(&'static str, Vec<IpAddr>, BTreeMap<&'static str, u16>)>,
}

impl Served {
    fn new(site: &Site, name: &'static str, object: &Value, number: Option<u8>) -> Result<Served> {
        let families = site.stack.cluster().families();
        let ips: Vec<IpAddr> = serde_json::from_value(object["spec"]["clusterIPs"].clone())?;
        let ports = |field: &str| -> BTreeMap<&'static str, u16> {
            let list = object["spec"]["ports"].as_array().into_iter().flatten();
            list.filter_map(|port| {
                let protocol = PROTOCOLS.into_iter().find(|known| port["name"] == json!(known))?;
                Some((protocol, u16::try_from(port[field].as_u64()?).ok()?))
            })
            .collect()
        };
        let (port, node_port) = (ports("port"), ports("nodePort"));
        let mut targets = vec![("cluster", ips, port.clone())];
        if !node_port.is_empty() {
            targets.push(("nodeport1", on_underlay(families, 1), node_port.clone()));
            targets.push(("nodeport2", on_underlay(families, 2), node_port));
        }
        if let Some(number) = number {
            let has = |ip: &IpAddr| families.has(ip.is_ipv4());
            let all = |net| external(net, number).into_iter().filter(|ip| has(ip)).collect();
            targets.push(("lb", all(203), port.clone()));
            targets.push(("external", all(198), port));
        }
        Ok(Served { name, targets })
    }

    /// `LABEL=PROTOCOL:ADDRESS:PORT` for all of it that a place can ask.
    fn addresses(&self, place: &str, protocols: &[&str]) -> Vec<String> {
        let mut all = Vec::new();
        for (target, ips, ports) in &self.targets {
            if place == "outside" && *target == "cluster" {
                continue;
            }
            for ip in ips {
                for protocol in protocols {
                    let Some(port) = ports.get(protocol) else { continue };
                    let family = if ip.is_ipv4() { "v4" } else { "v6" };
                    let label = format!("{}/{target}/{protocol}/{family}", self.name);
                    all.push(format!("{label}={protocol}:{}", SocketAddr::new(*ip, *port)));
                }
            }
        }
        all
    }
}

/// The node a place is on; outside, the one that a target's packets arrive at.
fn node_of(place: &str, target: &str) -> u8 {
    let at = if place == "outside" { target } else { place };
    if at.ends_with('2') || at == "external" { 2 } else { 1 }
}

/// The rule, from the documentation of Services and of OVN-Kubernetes.
fn expected(mode: &str, place: &str, service: &str, target: &str) -> Expected {
    // OVN's router refuses in the name of the node, which TCP does not take for an answer.
    let unheard = if mode == "shared" { Unanswered } else { Refused };
    let here = node_of(place, target);
    let from_pod = place.starts_with("pod");
    // A node port of another node is reached over the network between nodes.
    let far = target.strip_prefix("nodeport").filter(|number| *number != here.to_string());
    let far: Option<u8> = far.and_then(|number| number.parse().ok());
    let router = Seen::Router(far.unwrap_or(here));
    match (service, target) {
        ("none", _) => Refused,
        ("host", _) => Answers(&["h1", "h2"], Seen::Any),
        ("both", _) if from_pod && far.is_none() => Answers(&["b1", "b2"], Seen::Own),
        ("both", _) => Answers(&["b1", "b2"], router),
        // The only endpoint is on node 1.
        ("inner", _) if here == 2 => Refused,
        ("inner", _) if from_pod => Answers(&["b1"], Seen::Own),
        ("inner", _) => Answers(&["b1"], Seen::Port(1)),
        ("stay", _) if far == Some(2) => Refused,
        ("stay", _) if far == Some(1) => Answers(&["b1"], Seen::Node(2)),
        ("stay", "external") if place == "outside" => unheard,
        ("stay", _) if place == "outside" && here == 2 => Refused,
        // What starts inside the cluster is not from outside, whatever address it uses.
        ("stay", _) if from_pod || place == "outside" => Answers(&["b1"], Seen::Own),
        ("stay", _) => Answers(&["b1"], router),
        _ => Refused,
    }
}

/// The clients' and everybody's addresses, by what they are.
struct Known {
    own: BTreeMap<&'static str, Vec<IpAddr>>,
    families: Families,
    ports: [Vec<IpAddr>; 2],
}

impl Known {
    async fn of(site: &Site) -> Result<Known> {
        let families = site.stack.cluster().families();
        let mut own = BTreeMap::new();
        for place in PLACES {
            let ips = match place {
                "pod1" => addresses(site.pod("c1")?),
                "pod2" => addresses(site.pod("c2")?),
                "node1" => on_underlay(families, 1),
                "node2" => on_underlay(families, 2),
                _ => outside(&site.stack),
            };
            own.insert(place, ips);
        }
        let mut ports = [Vec::new(), Vec::new()];
        for (node, ports) in site.stack.cluster().nodes().iter().zip(&mut ports) {
            let text =
                node.exec(&["ip", "-o", "addr", "show", "dev", "ovn-k8s-mp0", "scope", "global"]).await?;
            let words = text.lines().filter_map(|line| line.split_whitespace().nth(3));
            *ports = words.filter_map(|net| net.split('/').next()?.parse().ok()).collect();
        }
        Ok(Known { own, families, ports })
    }

    /// The address in text; none if it may be any.
    fn address(&self, place: &str, seen: Seen, v4: bool) -> Option<String> {
        let list = match seen {
            Seen::Any => return None,
            Seen::Own => self.own.get(place).cloned().unwrap_or_default(),
            Seen::Node(number) => on_underlay(self.families, number),
            Seen::Port(number) => self.ports[usize::from(number) - 1].clone(),
            // Ids of nodes start at 2.
            Seen::Router(number) => {
                let id = number + 1;
                vec![[100, 64, 0, id].into(), [0xfd98, 0, 0, 0, 0, 0, 0, u16::from(id)].into()]
            }
        };
        list.into_iter().find(|ip| ip.is_ipv4() == v4).map(|ip| ip.to_string())
    }
}

/// What is wrong with an outcome; none if nothing is.
fn judge(known: &Known, mode: &str, place: &str, label: &str, got: &Got) -> Option<String> {
    let mut parts = label.split('/');
    let (service, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let v4 = label.ends_with("v4");
    let right = match expected(mode, place, service, target) {
        Refused => {
            // The kernel and OVN send only so many refusals a second; TCP asks again by itself.
            let enough = label.contains("/udp/") && got.errors.contains("refused");
            got.names.is_empty() && (enough || got.errors == BTreeSet::from(["refused".to_owned()]))
        }
        Unanswered => got.names.is_empty() && !got.errors.is_empty(),
        Answers(names, seen) => {
            let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let seen = known.address(place, seen, v4);
            got.names == names
                && got.errors.is_empty()
                && seen.is_none_or(|seen| got.peers == BTreeSet::from([seen]))
        }
    };
    (!right).then(|| format!("{place} → {label}: {got:?}, not {:?}", expected(mode, place, service, target)))
}

/// An outcome in few letters.
fn cell(known: &Known, place: &str, got: &Got, v4: bool) -> String {
    let names: Vec<&str> = got.names.iter().map(String::as_str).collect();
    let errors: Vec<&str> = got.errors.iter().map(String::as_str).collect();
    let kinds = [
        ("own", Seen::Own),
        ("router1", Seen::Router(1)),
        ("router2", Seen::Router(2)),
        ("node1", Seen::Node(1)),
        ("node2", Seen::Node(2)),
        ("port1", Seen::Port(1)),
        ("port2", Seen::Port(2)),
    ];
    let peers: Vec<String> = got
        .peers
        .iter()
        .map(|peer| {
            let kind = kinds
                .iter()
                .find(|(_, seen)| known.address(place, *seen, v4).as_ref() == Some(peer))
                .map(|(text, _)| (*text).to_owned());
            kind.unwrap_or_else(|| peer.clone())
        })
        .collect();
    let mut text = names.join("+");
    if !peers.is_empty() {
        let _ = write!(text, " as {}", peers.join("+"));
    }
    if !errors.is_empty() {
        let _ = write!(text, " {}", errors.join("+"));
    }
    text.trim().to_owned()
}

/// Protocols this kernel has.
fn protocols() -> Vec<&'static str> {
    let has_sctp = std::path::Path::new("/proc/sys/net/sctp").exists();
    PROTOCOLS.into_iter().filter(|protocol| *protocol != "sctp" || has_sctp).collect()
}

struct Matrix {
    mode: String,
    /// Target, place → cells with the protocols and families they hold for.
    cells: BTreeMap<(String, usize), BTreeMap<String, Vec<String>>>,
    wrong: Vec<String>,
}

impl Matrix {
    async fn of(site: &Site, mode: &str, served: &[Served]) -> Result<Matrix> {
        let known = Known::of(site).await?;
        let protocols = protocols();
        let mut matrix = Matrix { mode: mode.to_owned(), cells: BTreeMap::new(), wrong: Vec::new() };
        for (at, name) in PLACES.into_iter().enumerate() {
            let from = place(site, name)?;
            let targets: Vec<String> =
                served.iter().flat_map(|served| served.addresses(name, &protocols)).collect();
            let (refused, answered): (Vec<String>, Vec<String>) = targets.into_iter().partition(|target| {
                let mut parts = target.split('/');
                let (service, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                !matches!(expected(mode, name, service, target), Answers(..))
            });
            let mut all = site.ask_often(&from, &answered).await?;
            // OVN sends no more than 25 refusals a second.
            for some in refused.chunks(12) {
                all.extend(site.ask(&from, some, "3").await?);
            }
            for (label, got) in all {
                matrix.wrong.extend(judge(&known, mode, name, &label, &got));
                let (target, kind) = split_label(&label);
                let text = cell(&known, name, &got, label.ends_with("v4"));
                matrix.cells.entry((target, at)).or_default().entry(text).or_default().push(kind);
            }
        }
        Ok(matrix)
    }

    /// One line a target, one column a place. Where protocols or families differ it says for which a cell holds.
    fn print(&self) {
        let targets: BTreeSet<&String> = self.cells.keys().map(|(target, _)| target).collect();
        println!("\n{} gateway: target | {}", self.mode, PLACES.join(" | "));
        for target in targets {
            let columns: Vec<String> = (0..PLACES.len())
                .map(|at| match self.cells.get(&(target.clone(), at)) {
                    None => "·".to_owned(),
                    Some(cells) if cells.len() == 1 => cells.keys().cloned().collect(),
                    Some(cells) => {
                        let each = cells.iter().map(|(text, kinds)| format!("{text} ({})", kinds.join(" ")));
                        each.collect::<Vec<_>>().join("; ")
                    }
                })
                .collect();
            println!("{target} | {}", columns.join(" | "));
        }
    }
}

/// `service/target` and `protocol/family`.
fn split_label(label: &str) -> (String, String) {
    let mut slashes = label.match_indices('/').map(|(at, _)| at);
    match slashes.nth(1) {
        Some(at) => (label[..at].to_owned(), label[at + 1..].to_owned()),
        None => (label.to_owned(), String::new()),
    }
}

/// Endpoints that are the nodes themselves.
async fn host_slices(site: &mut Site, service: &str) -> Result<()> {
    let families = site.stack.cluster().families();
    for (family, v4) in [("IPv4", true), ("IPv6", false)] {
        let endpoints: Vec<Value> = [1, 2]
            .into_iter()
            .flat_map(|number| {
                let ips = on_underlay(families, number).into_iter().filter(move |ip| ip.is_ipv4() == v4);
                ips.map(move |ip| {
                    json!({ "addresses": [ip], "nodeName": format!("node{number}"), "conditions": { "ready": true } })
                })
            })
            .collect();
        if !endpoints.is_empty() {
            site.apply(&slice(service, family, endpoints)).await?;
        }
    }
    Ok(())
}

fn slice(service: &str, family: &str, endpoints: Vec<Value>) -> Value {
    let ports: Vec<Value> = PROTOCOLS
        .into_iter()
        .map(|name| json!({ "name": name, "port": 8080, "protocol": name.to_uppercase() }))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": { "name": format!("{service}-{}", family.to_lowercase()), "namespace": lab::NAMESPACE,
            "labels": { "kubernetes.io/service-name": service } },
        "endpoints": endpoints, "ports": ports,
    })
}

async fn site(mode: &str, families: Families) -> Result<Site> {
    let cluster = Cluster::builder().nodes(2).families(families).start().await?;
    let options = AgentOptions { gateway_mode: mode.to_owned(), ..AgentOptions::default() };
    let mut stack = Stack::without_agents(cluster, ApiChoice::Any).await?;
    stack.start_agents(options).await?;
    let pods = vec![
        server("b1", "node1", json!({ "both": "yes", "one": "yes" }))?,
        server("b2", "node2", json!({ "both": "yes" }))?,
        client("c1", "node1"),
        client("c2", "node2"),
    ];
    let site = Site::with_pods(stack, pods).await?;
    for name in ["b1", "b2"] {
        site.listens(name).await?;
    }
    Ok(site)
}

/// Services of every kind.
async fn serve(site: &mut Site) -> Result<Vec<Served>> {
    let families = site.stack.cluster().families();
    let ips = |net, number| -> Vec<IpAddr> {
        external(net, number).into_iter().filter(|ip| families.has(ip.is_ipv4())).collect()
    };
    let mut served = Vec::new();
    let policies: [(&'static str, u8, Value); 3] = [
        ("both", 1, json!({ "selector": { "both": "yes" } })),
        ("stay", 2, json!({ "selector": { "one": "yes" }, "externalTrafficPolicy": "Local" })),
        ("none", 3, json!({ "selector": { "nobody": "yes" } })),
    ];
    for (name, number, mut spec) in policies {
        spec["type"] = json!("LoadBalancer");
        spec["externalIPs"] = json!(ips(198, number));
        let object = site.serve(name, &spec).await?;
        site.balance(name, &ips(203, number)).await?;
        route(&site.stack, &ips(203, number), 1).await?;
        route(&site.stack, &ips(198, number), 2).await?;
        served.push(Served::new(site, name, &object, Some(number))?);
    }
    let spec = json!({ "selector": { "one": "yes" }, "internalTrafficPolicy": "Local" });
    let object = site.serve("inner", &spec).await?;
    served.push(Served::new(site, "inner", &object, None)?);
    site.serve_on_nodes().await?;
    let object = site.serve("host", &json!({ "type": "NodePort" })).await?;
    host_slices(site, "host").await?;
    served.push(Served::new(site, "host", &object, None)?);
    Ok(served)
}

/// Waits until the switches of all nodes know what the objects say.
async fn settled(site: &Site) -> Result<()> {
    for node in site.stack.cluster().nodes() {
        node.ovn(&["ovn-nbctl", "--timeout=20", "--wait=hv", "sync"]).await?;
    }
    Ok(())
}

/// A server outside that listens where a service has its node port is itself reached there.
async fn node_ports_elsewhere_are_nobodys(site: &mut Site, served: &Served) -> Result<()> {
    let ports =
        served.targets.iter().find(|(target, ..)| *target == "nodeport1").context("no node port")?.2.clone();
    let (mut targets, probe) = (Vec::new(), lab::probe()?);
    for address in outside(&site.stack) {
        for protocol in ["tcp", "udp"] {
            let port = ports.get(protocol).context("no port")?;
            let (from, number) = (address.to_string(), port.to_string());
            let argv =
                [&probe, "serve", "--from", &from, "--port", &number, "--name", "away"].map(str::to_owned);
            let program = devcluster::Program { argv: argv.to_vec(), ..devcluster::Program::default() };
            site.servers.push(site.stack.cluster().underlay().spawn(program).await?);
            targets.push(format!("away/{protocol}/{address}={protocol}:{}", SocketAddr::new(address, *port)));
        }
    }
    let away = BTreeSet::from(["away".to_owned()]);
    for name in ["pod1", "node1"] {
        lab::eventually("the server outside", async || {
            for (label, got) in site.ask(&place(site, name)?, &targets, "3").await? {
                ensure!(got.names == away && got.errors.is_empty(), "{name} → {label}: {got:?}");
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn every_cell(mode: &str) -> Result<()> {
    let mut site = site(mode, Families::Dual).await?;
    let served = serve(&mut site).await?;
    let both = served.first().context("nothing is served")?;
    node_ports_elsewhere_are_nobodys(&mut site, both).await?;
    let matrix = lab::eventually(&format!("{mode} gateway"), async || {
        settled(&site).await?;
        let matrix = Matrix::of(&site, mode, &served).await?;
        if !matrix.wrong.is_empty() {
            matrix.print();
        }
        ensure!(matrix.wrong.is_empty(), "{} cells:\n{}", matrix.wrong.len(), matrix.wrong.join("\n"));
        Ok(matrix)
    })
    .await?;
    matrix.print();
    site.stack.stop().await
}

#[test]
fn every_place_reaches_every_address_through_a_shared_gateway() -> Result<()> {
    run(every_cell("shared"))
}

#[test]
fn every_place_reaches_every_address_through_a_local_gateway() -> Result<()> {
    run(every_cell("local"))
}

/// Reads until the log of a steady client says `line`.
async fn says(log: &std::path::Path, from: usize, line: &str) -> Result<()> {
    lab::eventually(&format!("{}: {line}", log.display()), async || {
        let text = std::fs::read_to_string(log)?;
        ensure!(text.get(from..).is_some_and(|text| text.lines().any(|said| said == line)), "{text:.200}");
        Ok(())
    })
    .await
}

/// Starts asking so often a second, with so many milliseconds of patience, and gives where the answers are written.
async fn ask_steadily(
    site: &Site,
    from: &Place,
    name: &str,
    target: &str,
    (rate, timeout): (&str, &str),
) -> Result<(devcluster::Process, std::path::PathBuf)> {
    let log = site.stack.cluster().work_dir().join(format!("{name}.log"));
    let argv = [lab::probe()?.as_str(), "steady", target, "--rate", rate, "--timeout-ms", timeout]
        .map(str::to_owned)
        .to_vec();
    let process = from.spawn_logged(&site.stack, argv, log.clone()).await?;
    Ok((process, log))
}

/// A service of one name has exactly these endpoints from now on.
async fn endpoints(site: &mut Site, service: &str, pods: &[&str]) -> Result<()> {
    for (family, v4) in [("IPv4", true), ("IPv6", false)] {
        let mut list = Vec::new();
        for name in pods {
            let pod = site.pod(name)?;
            let node = pod.node().name().to_owned();
            let ips = addresses(pod).into_iter().filter(|ip| ip.is_ipv4() == v4);
            list.extend(
                ips.map(|ip| json!({ "addresses": [ip], "nodeName": node, "conditions": { "ready": true } })),
            );
        }
        if site.stack.cluster().families().has(v4) {
            site.apply(&slice(service, family, list)).await?;
        }
    }
    Ok(())
}

/// Where each of the five places asks from.
fn place(site: &Site, name: &str) -> Result<Place> {
    Ok(match name {
        "pod1" => Place::Pod(site.pod("c1")?.clone()),
        "pod2" => Place::Pod(site.pod("c2")?.clone()),
        "node1" => site.node(1),
        "node2" => site.node(2),
        _ => Place::Outside,
    })
}

/// Waits until everybody gets answers of these servers and no others.
async fn answered_by(site: &Site, served: &Served, protocol: &str, names: &[&str]) -> Result<()> {
    let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    lab::eventually(&format!("{names:?} answer"), async || {
        for name in PLACES {
            let got = site.ask_often(&place(site, name)?, &served.addresses(name, &[protocol])).await?;
            for (label, got) in got {
                ensure!(got.names == names && got.errors.is_empty(), "{name} → {label}: {got:?}");
            }
        }
        Ok(())
    })
    .await
}

/// UDP has no end of a connection: a client that keeps its port would ask an endpoint that is gone for ever.
async fn udp_clients_follow(mode: &str) -> Result<()> {
    let mut site = site(mode, Families::V4).await?;
    let service = site.serve("moving", &json!({ "type": "NodePort" })).await?;
    let served = Served::new(&site, "moving", &service, None)?;
    // Everybody knows the way to both: a router of OVN does not translate a client's second packet if the first was lost.
    endpoints(&mut site, "moving", &["b1", "b2"]).await?;
    answered_by(&site, &served, "udp", &["b1", "b2"]).await?;
    endpoints(&mut site, "moving", &["b1"]).await?;
    answered_by(&site, &served, "udp", &["b1"]).await?;
    let mut clients = Vec::new();
    for name in PLACES {
        let from = place(&site, name)?;
        for target in served.addresses(name, &["udp"]) {
            let (label, target) = target.split_once('=').context("no label")?;
            let name = format!("{name}-{}", label.replace('/', "-"));
            clients.push((name.clone(), ask_steadily(&site, &from, &name, target, ("20", "200")).await?));
        }
    }
    ensure!(clients.len() == 14, "{} clients", clients.len());
    for (_, (_, log)) in &clients {
        says(log, 0, "ok b1").await?;
    }
    let mut read = Vec::new();
    for (_, (_, log)) in &clients {
        read.push(std::fs::read_to_string(log)?.len());
    }
    endpoints(&mut site, "moving", &["b2"]).await?;
    for ((name, (_, log)), from) in clients.iter().zip(read) {
        says(log, from, "ok b2").await.with_context(|| format!("{mode} gateway: {name}"))?;
    }
    site.stack.stop().await
}

#[test]
fn udp_clients_that_keep_their_port_follow_a_replaced_endpoint() -> Result<()> {
    run(async {
        udp_clients_follow("shared").await?;
        udp_clients_follow("local").await
    })
}

/// Requests of one client in a thousand and more that may be lost on the way.
const LOST: usize = 2;

/// All endpoints are replaced, one by one, while clients ask a hundred times a second.
async fn rolling(mode: &str) -> Result<()> {
    let mut site = site(mode, Families::V4).await?;
    for (name, node) in [("r1", "node1"), ("r2", "node2")] {
        site.add(server(name, node, json!({ "roll": "yes" }))?).await?;
        site.listens(name).await?;
    }
    let spec = json!({ "type": "NodePort", "selector": { "roll": "yes" } });
    let service = site.serve("rolling", &spec).await?;
    let served = Served::new(&site, "rolling", &service, None)?;
    let mut clients = Vec::new();
    for name in ["pod1", "node2", "outside"] {
        let from = place(&site, name)?;
        let wanted = if name == "outside" { "nodeport1" } else { "cluster" };
        let all = served.addresses(name, &["tcp"]);
        let target = all.iter().find(|text| text.contains(wanted)).context("no target")?;
        let (_, target) = target.split_once('=').context("no label")?;
        // Only what is asked once the service stands counts.
        lab::eventually("the service stands", async || {
            let got = site.ask_often(&from, &[format!("x={target}")]).await?;
            ensure!(got.values().all(|got| got.names.len() == 2 && got.errors.is_empty()), "{got:?}");
            Ok(())
        })
        .await?;
        clients.push((name, ask_steadily(&site, &from, name, target, ("100", "5000")).await?));
    }
    for (_, (_, log)) in &clients {
        says(log, 0, "ok r1").await?;
        says(log, 0, "ok r2").await?;
    }
    for (old, new, node) in [("r1", "r3", "node2"), ("r2", "r4", "node1")] {
        // As with a readiness probe: it belongs to the service once it answers.
        site.add(server(new, node, json!({ "roll": "soon" }))?).await?;
        site.listens(new).await?;
        let patch = server(new, node, json!({ "roll": "yes" }))?;
        site.apply(&patch).await?;
        for (_, (_, log)) in &clients {
            says(log, 0, &format!("ok {new}")).await?;
        }
        let uid = site.pod(old)?.record.uid.clone();
        lab::delete_pod(&site.stack, old).await?;
        lab::pod_gone(&site.stack, old, &uid).await?;
    }
    let (mut asked, mut unanswered) = (0, 0);
    for (name, (process, log)) in &clients {
        let text = std::fs::read_to_string(log)?;
        says(log, text.len(), "ok r4").await?;
        process.kill9().await?;
        let text = std::fs::read_to_string(log)?;
        let failed: Vec<&str> = text.lines().filter(|line| line.starts_with("failed")).collect();
        asked += text.lines().count();
        // Behind a gateway router OVN does not translate a connection whose first packet was lost, so that it cannot be
        // made up for by sending it again: one lost packet is one request lost. Nothing else may happen.
        let lost = failed.iter().filter(|line| **line == "failed silent" && *name != "pod1").count();
        unanswered += lost;
        ensure!(failed.len() == lost && lost <= LOST, "{mode} gateway, {name}: {failed:?}");
    }
    println!("{mode} gateway: {asked} requests, none failed, {unanswered} lost on the way");
    site.stack.stop().await
}

#[test]
fn no_request_fails_while_all_endpoints_are_replaced() -> Result<()> {
    run(async {
        rolling("shared").await?;
        rolling("local").await
    })
}

/// Status line and body of a health check.
fn health(site: &Site, number: u8, port: u64) -> Result<(String, Value)> {
    let node = site.stack.cluster().node(number).clone();
    let answer = node.in_network(|| lab::http_get(&format!("127.0.0.1:{port}"), "/healthz"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no body")?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), serde_json::from_str(body)?))
}

#[test]
fn affinity_hairpin_and_health_checks() -> Result<()> {
    run(async {
        let mut site = site("shared", Families::V4).await?;
        let sticky = json!({ "type": "NodePort", "selector": { "both": "yes" }, "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 10_800 } } });
        let object = site.serve("sticky", &sticky).await?;
        let sticky = Served::new(&site, "sticky", &object, None)?;
        let object = site.serve("own", &json!({ "selector": { "one": "yes" } })).await?;
        let own = Served::new(&site, "own", &object, None)?;
        let spec =
            json!({ "type": "LoadBalancer", "selector": { "one": "yes" }, "externalTrafficPolicy": "Local" });
        let stay = site.serve("stay", &spec).await?;

        // One client, one endpoint, however often and from whatever port it asks.
        for (place, from) in [("pod1", Place::Pod(site.pod("c1")?.clone())), ("outside", Place::Outside)] {
            let targets = sticky.addresses(place, &["tcp"]);
            lab::eventually("affinity", async || {
                let got = site.ask_often(&from, &targets).await?;
                for (label, got) in &got {
                    ensure!(got.errors.is_empty() && got.names.len() == 1, "{place} → {label}: {got:?}");
                }
                Ok(())
            })
            .await?;
        }
        // An endpoint that asks its own service sees an address that is not its own.
        let from = Place::Pod(site.pod("b1")?.clone());
        lab::eventually("hairpin", async || {
            let got = site.ask_often(&from, &own.addresses("pod1", &["tcp", "udp"])).await?;
            ensure!(got.len() == 2);
            for (label, got) in &got {
                ensure!(got.names.contains("b1") && got.errors.is_empty(), "{label}: {got:?}");
                ensure!(got.peers == BTreeSet::from(["169.254.169.5".to_owned()]), "{label}: {got:?}");
            }
            Ok(())
        })
        .await?;
        let port = stay["spec"]["healthCheckNodePort"].as_u64().context("no port for health checks")?;
        for (number, status, count) in [(1, "HTTP/1.1 200 OK", 1), (2, "HTTP/1.1 503 Service Unavailable", 0)]
        {
            lab::eventually("health check", async || {
                let (line, body) = health(&site, number, port)?;
                ensure!(
                    line == status && body["localEndpoints"] == json!(count),
                    "node{number}: {line} {body}"
                );
                ensure!(body["service"] == json!({ "namespace": lab::NAMESPACE, "name": "stay" }), "{body}");
                Ok(())
            })
            .await?;
        }
        site.stack.stop().await
    })
}
