//! Columns and cells of built-in kinds, as kube-apiserver prints them.

use serde_json::{Map, Value, json};

use super::age;

type Names = &'static [(&'static str, i64)];

/// JSON type of a column.
pub(super) fn column_type(name: &str) -> &'static str {
    match name {
        "Data" | "Completions" | "Desired" | "Current" | "Up-to-date" | "Available" | "Secrets" | "Count" => {
            "integer"
        }
        _ => "string",
    }
}

pub(super) fn columns(group: &str, plural: &str) -> Option<Names> {
    Some(match (group, plural) {
        ("", "pods") => &[
            ("Name", 0),
            ("Ready", 0),
            ("Status", 0),
            ("Restarts", 0),
            ("Age", 0),
            ("IP", 1),
            ("Node", 1),
            ("Nominated Node", 1),
            ("Readiness Gates", 1),
        ],
        ("", "nodes") => &[
            ("Name", 0),
            ("Status", 0),
            ("Roles", 0),
            ("Age", 0),
            ("Version", 0),
            ("Internal-IP", 1),
            ("External-IP", 1),
            ("OS-Image", 1),
            ("Kernel-Version", 1),
            ("Container-Runtime", 1),
        ],
        ("", "namespaces") => &[("Name", 0), ("Status", 0), ("Age", 0)],
        ("", "services") => &[
            ("Name", 0),
            ("Type", 0),
            ("Cluster-IP", 0),
            ("External-IP", 0),
            ("Port(s)", 0),
            ("Age", 0),
            ("Selector", 1),
        ],
        ("", "endpoints") => &[("Name", 0), ("Endpoints", 0), ("Age", 0)],
        ("", "events") => &[
            ("Last Seen", 0),
            ("Type", 0),
            ("Reason", 0),
            ("Object", 0),
            ("Subobject", 1),
            ("Source", 1),
            ("Message", 0),
            ("First Seen", 1),
            ("Count", 1),
            ("Name", 1),
        ],
        ("events.k8s.io", "events") => &[
            ("Last Seen", 0),
            ("Type", 0),
            ("Reason", 0),
            ("Object", 0),
            ("Subobject", 1),
            ("Source", 1),
            ("Message", 0),
            ("First Seen", 1),
            ("Count", 1),
            ("Name", 1),
        ],
        ("", "configmaps") => &[("Name", 0), ("Data", 0), ("Age", 0)],
        ("", "secrets") => &[("Name", 0), ("Type", 0), ("Data", 0), ("Age", 0)],
        ("", "serviceaccounts") => &[("Name", 0), ("Secrets", 0), ("Age", 0)],
        ("apps", "deployments") => &[
            ("Name", 0),
            ("Ready", 0),
            ("Up-to-date", 0),
            ("Available", 0),
            ("Age", 0),
            ("Containers", 1),
            ("Images", 1),
            ("Selector", 1),
        ],
        ("apps", "daemonsets") => &[
            ("Name", 0),
            ("Desired", 0),
            ("Current", 0),
            ("Ready", 0),
            ("Up-to-date", 0),
            ("Available", 0),
            ("Node Selector", 0),
            ("Age", 0),
            ("Containers", 1),
            ("Images", 1),
            ("Selector", 1),
        ],
        ("apps", "replicasets") => &[
            ("Name", 0),
            ("Desired", 0),
            ("Current", 0),
            ("Ready", 0),
            ("Age", 0),
            ("Containers", 1),
            ("Images", 1),
            ("Selector", 1),
        ],
        ("apps", "statefulsets") => {
            &[("Name", 0), ("Ready", 0), ("Age", 0), ("Containers", 1), ("Images", 1)]
        }
        ("discovery.k8s.io", "endpointslices") => {
            &[("Name", 0), ("AddressType", 0), ("Ports", 0), ("Endpoints", 0), ("Age", 0)]
        }
        ("networking.k8s.io", "networkpolicies") => &[("Name", 0), ("Pod-Selector", 0), ("Age", 0)],
        ("networking.k8s.io", "ingresses") => {
            &[("Name", 0), ("Class", 0), ("Hosts", 0), ("Address", 0), ("Ports", 0), ("Age", 0)]
        }
        ("networking.k8s.io", "servicecidrs") => &[("Name", 0), ("CIDRs", 0), ("Age", 0)],
        ("coordination.k8s.io", "leases") => &[("Name", 0), ("Holder", 0), ("Age", 0)],
        ("apiextensions.k8s.io", _) => &[("Name", 0), ("Created At", 0)],
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => &[("Name", 0), ("Created At", 0)],
        ("rbac.authorization.k8s.io", _) => {
            &[("Name", 0), ("Role", 0), ("Age", 0), ("Users", 1), ("Groups", 1), ("ServiceAccounts", 1)]
        }
        ("policy", _) => &[
            ("Name", 0),
            ("Min Available", 0),
            ("Max Unavailable", 0),
            ("Allowed Disruptions", 0),
            ("Age", 0),
        ],
        _ => return None,
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn or(text: String, fallback: &str) -> String {
    if text.is_empty() { fallback.into() } else { text }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn count(value: &Value) -> usize {
    value.as_object().map_or(0, Map::len)
}

fn labels(map: &Value) -> String {
    let pairs: Vec<String> =
        map.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", text(v))).collect();
    or(pairs.join(","), "<none>")
}

fn selector(selector: &Value) -> String {
    let mut parts: Vec<String> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", text(v)))
        .collect();
    for e in list(&selector["matchExpressions"]) {
        let values: Vec<String> = list(&e["values"]).map(text).collect();
        let key = text(&e["key"]);
        parts.push(match e["operator"].as_str() {
            Some("Exists") => key,
            Some("DoesNotExist") => format!("!{key}"),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            _ => format!("{key} in ({})", values.join(",")),
        });
    }
    or(parts.join(","), "<none>")
}

fn shortened(all: &[String], shown: usize) -> String {
    if all.len() <= shown {
        return or(all.join(","), "<none>");
    }
    format!("{} + {} more...", all[..shown].join(","), all.len() - shown)
}

/// Cells of an object; `None` for kinds that only show name and age.
pub(super) fn cells(group: &str, plural: &str, object: &Value) -> Option<Vec<Value>> {
    let meta = &object["metadata"];
    let (name, since) = (text(&meta["name"]), age(&meta["creationTimestamp"]));
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |v: &Value| v.as_i64().unwrap_or(0);
    Some(match (group, plural) {
        ("", "pods") => pod(object, name, since),
        ("", "nodes") => node(object, name, since),
        ("", "namespaces") => vec![json!(name), json!(text(&status["phase"])), json!(since)],
        ("", "services") => service(object, name, since),
        ("", "endpoints") => vec![json!(name), json!(endpoints(object)), json!(since)],
        (_, "events") => event(group, object, name),
        ("", "configmaps") => {
            vec![json!(name), json!(count(&object["data"]) + count(&object["binaryData"])), json!(since)]
        }
        ("", "secrets") => {
            vec![json!(name), object["type"].clone(), json!(count(&object["data"])), json!(since)]
        }
        ("", "serviceaccounts") => vec![json!(name), json!(list(&object["secrets"]).count()), json!(since)],
        ("apps", "deployments") => {
            let ready = format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"]));
            let (updated, available) =
                (number(&status["updatedReplicas"]), number(&status["availableReplicas"]));
            let mut row = vec![json!(name), json!(ready), json!(updated), json!(available), json!(since)];
            row.extend(template(spec));
            row
        }
        ("apps", "daemonsets") => {
            let numbers = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ];
            let mut row = vec![json!(name)];
            row.extend(numbers.iter().map(|n| json!(number(&status[*n]))));
            row.push(json!(labels(&spec["template"]["spec"]["nodeSelector"])));
            row.push(json!(since));
            row.extend(template(spec));
            row
        }
        ("apps", "replicasets") => {
            let numbers = [&spec["replicas"], &status["replicas"], &status["readyReplicas"]];
            let mut row = vec![json!(name)];
            row.extend(numbers.iter().map(|n| json!(number(n))));
            row.push(json!(since));
            row.extend(template(spec));
            row
        }
        ("apps", "statefulsets") => {
            let ready = format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"]));
            let mut row = vec![json!(name), json!(ready), json!(since)];
            row.extend(template(spec).into_iter().take(2));
            row
        }
        ("discovery.k8s.io", "endpointslices") => {
            let ports: Vec<String> = list(&object["ports"]).map(|p| p["port"].to_string()).collect();
            let addresses: Vec<String> =
                list(&object["endpoints"]).flat_map(|e| list(&e["addresses"])).map(text).collect();
            let ports = if ports.is_empty() { "<unset>".into() } else { shortened(&ports, 3) };
            let addresses = if addresses.is_empty() { "<unset>".into() } else { shortened(&addresses, 3) };
            vec![json!(name), object["addressType"].clone(), json!(ports), json!(addresses), json!(since)]
        }
        ("networking.k8s.io", "networkpolicies") => {
            vec![json!(name), json!(selector(&spec["podSelector"])), json!(since)]
        }
        ("networking.k8s.io", "ingresses") => {
            let hosts: Vec<String> =
                list(&spec["rules"]).map(|r| text(&r["host"])).filter(|h| !h.is_empty()).collect();
            let hosts = if hosts.is_empty() { "*".into() } else { shortened(&hosts, 3) };
            let address: Vec<String> = list(&status["loadBalancer"]["ingress"])
                .map(|i| or(text(&i["ip"]), i["hostname"].as_str().unwrap_or("")))
                .collect();
            let ports = if list(&spec["tls"]).count() > 0 { "80, 443" } else { "80" };
            let class = or(text(&spec["ingressClassName"]), "<none>");
            vec![
                json!(name),
                json!(class),
                json!(hosts),
                json!(address.join(",")),
                json!(ports),
                json!(since),
            ]
        }
        ("networking.k8s.io", "servicecidrs") => {
            let cidrs: Vec<String> = list(&spec["cidrs"]).map(text).collect();
            vec![json!(name), json!(cidrs.join(",")), json!(since)]
        }
        ("coordination.k8s.io", "leases") => {
            vec![json!(name), json!(text(&spec["holderIdentity"])), json!(since)]
        }
        ("apiextensions.k8s.io", _) | ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            vec![json!(name), meta["creationTimestamp"].clone()]
        }
        ("rbac.authorization.k8s.io", _) => binding(object, name, since),
        ("policy", _) => {
            let or_none = |v: &Value| {
                if v.is_null() {
                    json!("N/A")
                } else {
                    json!(v.as_str().map_or_else(|| v.to_string(), String::from))
                }
            };
            vec![
                json!(name),
                or_none(&spec["minAvailable"]),
                or_none(&spec["maxUnavailable"]),
                json!(number(&status["disruptionsAllowed"])),
                json!(since),
            ]
        }
        _ => return None,
    })
}

fn template(spec: &Value) -> Vec<Value> {
    let containers = &spec["template"]["spec"]["containers"];
    let part = |field: &str| list(containers).map(|c| text(&c[field])).collect::<Vec<_>>().join(",");
    vec![json!(part("name")), json!(part("image")), json!(selector(&spec["selector"]))]
}

fn binding(object: &Value, name: String, since: String) -> Vec<Value> {
    let role = format!("{}/{}", text(&object["roleRef"]["kind"]), text(&object["roleRef"]["name"]));
    let of = |kind: &str| -> String {
        let subjects = list(&object["subjects"]).filter(|s| s["kind"] == json!(kind));
        let names = subjects.map(|s| {
            if kind == "ServiceAccount" {
                format!("{}/{}", text(&s["namespace"]), text(&s["name"]))
            } else {
                text(&s["name"])
            }
        });
        names.collect::<Vec<_>>().join(", ")
    };
    vec![
        json!(name),
        json!(role),
        json!(since),
        json!(of("User")),
        json!(of("Group")),
        json!(of("ServiceAccount")),
    ]
}

fn node(object: &Value, name: String, since: String) -> Vec<Value> {
    let status = &object["status"];
    let ready = list(&status["conditions"]).find(|c| c["type"] == json!("Ready"));
    let mut state = match ready.and_then(|c| c["status"].as_str()) {
        Some("True") => "Ready".to_string(),
        Some(_) => "NotReady".to_string(),
        None => "Unknown".to_string(),
    };
    if object["spec"]["unschedulable"] == json!(true) {
        state.push_str(",SchedulingDisabled");
    }
    let roles: Vec<&str> = object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(k, _)| k.strip_prefix("node-role.kubernetes.io/"))
        .filter(|r| !r.is_empty())
        .collect();
    let address = |ty: &str| {
        let found = list(&status["addresses"]).find(|a| a["type"] == json!(ty));
        or(found.map(|a| text(&a["address"])).unwrap_or_default(), "<none>")
    };
    let info = |field: &str| or(text(&status["nodeInfo"][field]), "<unknown>");
    vec![
        json!(name),
        json!(state),
        json!(or(roles.join(","), "<none>")),
        json!(since),
        json!(text(&status["nodeInfo"]["kubeletVersion"])),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(info("osImage")),
        json!(info("kernelVersion")),
        json!(info("containerRuntimeVersion")),
    ]
}

fn service(object: &Value, name: String, since: String) -> Vec<Value> {
    let spec = &object["spec"];
    let mut external: Vec<String> = list(&object["status"]["loadBalancer"]["ingress"])
        .map(|i| or(text(&i["ip"]), i["hostname"].as_str().unwrap_or_default()))
        .collect();
    external.extend(list(&spec["externalIPs"]).map(text));
    let external = match spec["type"].as_str() {
        Some("ExternalName") => text(&spec["externalName"]),
        Some("LoadBalancer") => or(external.join(","), "<pending>"),
        _ => or(external.join(","), "<none>"),
    };
    let ports: Vec<String> = list(&spec["ports"])
        .map(|p| match p["nodePort"].as_i64().filter(|n| *n > 0) {
            Some(node) => format!("{}:{node}/{}", p["port"], text(&p["protocol"])),
            None => format!("{}/{}", p["port"], text(&p["protocol"])),
        })
        .collect();
    vec![
        json!(name),
        spec["type"].clone(),
        json!(or(text(&spec["clusterIP"]), "<none>")),
        json!(external),
        json!(or(ports.join(","), "<none>")),
        json!(since),
        json!(labels(&spec["selector"])),
    ]
}

fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in list(&object["subsets"]) {
        for address in list(&subset["addresses"]) {
            let ip = text(&address["ip"]);
            let host = if ip.contains(':') { format!("[{ip}]") } else { ip };
            let mut ports = list(&subset["ports"]).peekable();
            if ports.peek().is_none() {
                all.push(host);
            } else {
                all.extend(ports.map(|p| format!("{host}:{}", p["port"])));
            }
        }
    }
    shortened(&all, 3)
}

fn event(group: &str, object: &Value, name: String) -> Vec<Value> {
    let core = group.is_empty();
    let about = if core { &object["involvedObject"] } else { &object["regarding"] };
    let pick = |core_name: &str, new_name: &str| &object[if core { core_name } else { new_name }];
    let first = pick("firstTimestamp", "deprecatedFirstTimestamp");
    let first = if first.is_null() { &object["eventTime"] } else { first };
    let last = pick("lastTimestamp", "deprecatedLastTimestamp");
    let last = [&object["series"]["lastObservedTime"], last, first].into_iter().find(|t| !t.is_null());
    let times = object["series"]["count"].as_i64().or(pick("count", "deprecatedCount").as_i64()).unwrap_or(1);
    let source = pick("source", "deprecatedSource");
    let component = or(
        text(&source["component"]),
        pick("reportingComponent", "reportingController").as_str().unwrap_or_default(),
    );
    let host = or(text(&source["host"]), object["reportingInstance"].as_str().unwrap_or_default());
    let from = if host.is_empty() { component } else { format!("{component}, {host}") };
    let object_name = format!("{}/{}", text(&about["kind"]).to_lowercase(), text(&about["name"]));
    let message = text(pick("message", "note"));
    vec![
        json!(last.map_or_else(|| "<unknown>".into(), age)),
        object["type"].clone(),
        object["reason"].clone(),
        json!(object_name),
        json!(text(&about["fieldPath"])),
        json!(from),
        json!(message.trim()),
        json!(age(first)),
        json!(times),
        json!(name),
    ]
}

fn pod(object: &Value, name: String, since: String) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let total = list(&spec["containers"]).count();
    let mut restarts = 0;
    let mut ready = 0;
    for container in list(&status["containerStatuses"]) {
        restarts += container["restartCount"].as_i64().unwrap_or(0);
        ready +=
            usize::from(container["ready"] == json!(true) && container["state"].get("running").is_some());
    }
    let gates: Vec<&Value> = list(&spec["readinessGates"]).collect();
    let passed = gates
        .iter()
        .filter(|g| {
            list(&status["conditions"])
                .any(|c| c["type"] == g["conditionType"] && c["status"] == json!("True"))
        })
        .count();
    let gates = if gates.is_empty() { "<none>".into() } else { format!("{passed}/{}", gates.len()) };
    let ip = list(&status["podIPs"]).next().map_or_else(|| text(&status["podIP"]), |p| text(&p["ip"]));
    vec![
        json!(name),
        json!(format!("{ready}/{total}")),
        json!(pod_status(object)),
        json!(restarts.to_string()),
        json!(since),
        json!(or(ip, "<none>")),
        json!(or(text(&spec["nodeName"]), "<none>")),
        json!(or(text(&status["nominatedNodeName"]), "<none>")),
        json!(gates),
    ]
}

/// The STATUS column: the phase, or what its containers are up to.
fn pod_status(object: &Value) -> String {
    let status = &object["status"];
    let mut reason = or(text(&status["reason"]), status["phase"].as_str().unwrap_or_default());
    if list(&status["conditions"])
        .any(|c| c["type"] == json!("PodScheduled") && c["reason"] == json!("SchedulingGated"))
    {
        reason = "SchedulingGated".into();
    }
    let total = list(&object["spec"]["initContainers"]).count();
    let mut initializing = false;
    for (at, container) in list(&status["initContainerStatuses"]).enumerate() {
        let state = &container["state"];
        if state["terminated"]["exitCode"] == json!(0) || container["started"] == json!(true) {
            continue;
        }
        reason = match (state.get("terminated"), state["waiting"]["reason"].as_str()) {
            (Some(ended), _) => {
                let why = text(&ended["reason"]);
                if why.is_empty() {
                    format!("Init:ExitCode:{}", ended["exitCode"])
                } else {
                    format!("Init:{why}")
                }
            }
            (None, Some(why)) if !why.is_empty() && why != "PodInitializing" => format!("Init:{why}"),
            _ => format!("Init:{at}/{total}"),
        };
        initializing = true;
        break;
    }
    if !initializing {
        let mut running = false;
        let containers: Vec<&Value> = list(&status["containerStatuses"]).collect();
        for container in containers.iter().rev() {
            let state = &container["state"];
            if let Some(why) = state["waiting"]["reason"].as_str().filter(|w| !w.is_empty()) {
                reason = why.into();
            } else if let Some(ended) = state.get("terminated") {
                let why = text(&ended["reason"]);
                reason = match (why.is_empty(), ended["signal"].as_i64().unwrap_or(0)) {
                    (false, _) => why,
                    (true, 0) => format!("ExitCode:{}", ended["exitCode"]),
                    (true, signal) => format!("Signal:{signal}"),
                };
            } else if container["ready"] == json!(true) && state.get("running").is_some() {
                running = true;
            }
        }
        if reason == "Completed" && running {
            let ready = list(&status["conditions"])
                .any(|c| c["type"] == json!("Ready") && c["status"] == json!("True"));
            reason = if ready { "Running".into() } else { "NotReady".into() };
        }
    }
    if object["metadata"].get("deletionTimestamp").is_some() {
        let lost = status["reason"] == json!("NodeLost");
        return if lost { "Unknown".into() } else { "Terminating".into() };
    }
    reason
}
