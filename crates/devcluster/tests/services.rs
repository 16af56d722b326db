//! Services with real packets: from every place to every address, in both gateway modes and both families.

#[path = "common/calls.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod calls;
#[path = "common/cells.rs"]
mod cells;
#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context, Result, ensure};
use calls::{PROTOCOLS, Place, Site, client, on_underlay, outside, route, server};
use cells::{Matrix, PLACES, Served, external, place};
use devcluster::{AgentOptions, ApiChoice, Cluster, Families, Stack};
use lab::{addresses, run};
use serde_json::{Value, json};

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
