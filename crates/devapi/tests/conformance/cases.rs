//! The questions and the answers.

use serde_json::{Value, json};

use crate::Case;

const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const OPERATIONS: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// A uid nobody has.
const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

pub(crate) fn create(title: &'static str, path: &str, body: Value, code: u16, says: &'static str) -> Case {
    Case { title, method: "POST", path: path.to_string(), content_type: JSON, body, code, says }
}

pub(crate) fn patch(
    title: &'static str,
    ty: &'static str,
    path: &str,
    body: Value,
    code: u16,
    says: &'static str,
) -> Case {
    Case { title, method: "PATCH", path: path.to_string(), content_type: ty, body, code, says }
}

pub(crate) fn get(title: &'static str, path: &str, code: u16, says: &'static str) -> Case {
    Case { title, method: "GET", path: path.to_string(), content_type: JSON, body: Value::Null, code, says }
}

pub(crate) fn delete(title: &'static str, path: &str, body: Value, code: u16, says: &'static str) -> Case {
    Case { title, method: "DELETE", path: path.to_string(), content_type: JSON, body, code, says }
}

pub(crate) fn object(version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    for (field, value) in rest.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = object("v1", "Pod", name, json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}));
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn service(spec: Value) -> Value {
    let mut service = object("v1", "Service", "d", json!({"spec": {"ports": [{"port": 80}]}}));
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    service
}

fn policy(spec: Value) -> Value {
    let mut policy =
        object("networking.k8s.io/v1", "NetworkPolicy", "d", json!({"spec": {"podSelector": {}}}));
    for (field, value) in spec.as_object().into_iter().flatten() {
        policy["spec"][field] = value.clone();
    }
    policy
}

fn slice(ty: &str, address: &str) -> Value {
    let rest = json!({"addressType": ty, "endpoints": [{"addresses": [address]}], "ports": []});
    object("discovery.k8s.io/v1", "EndpointSlice", "d", rest)
}

/// Everything that is asked, in order.
pub(crate) fn all() -> Vec<Case> {
    [metadata(), pods(), nodes(), services(), policies(), small_kinds(), lists()]
        .into_iter()
        .flatten()
        .collect()
}

fn metadata() -> Vec<Case> {
    let pods = "/api/v1/namespaces/default/pods";
    let (one, status) = (format!("{pods}/a"), format!("{pods}/a/status"));
    let uid = json!({"metadata": {"uid": NOBODY, "annotations": {"x": "y"}}});
    let immutable =
        "metadata.uid: Invalid value: \"00000000-0000-4000-8000-000000000000\": field is immutable";
    vec![
        create("a pod", pods, pod("a", json!({"nodeName": "n1"})), 201, ""),
        create("the same again", pods, pod("a", json!({})), 409, "AlreadyExists"),
        create("a name in capitals", pods, pod("B_x", json!({})), 422, "metadata.name"),
        create(
            "in no namespace",
            "/api/v1/namespaces/nope/pods",
            pod("b", json!({})),
            404,
            "namespaces \"nope\" not found",
        ),
        patch("another uid, merged", MERGE, &status, uid.clone(), 422, immutable),
        patch("another uid, strategically", STRATEGIC, &status, uid, 422, immutable),
        patch(
            "another uid, replaced",
            OPERATIONS,
            &status,
            json!([{"op": "replace", "path": "/metadata/uid", "value": NOBODY}]),
            422,
            immutable,
        ),
        patch(
            "another uid, applied",
            APPLY,
            &format!("{one}?fieldManager=x"),
            object("v1", "Pod", "a", json!({"metadata": {"name": "a", "uid": NOBODY}})),
            422,
            immutable,
        ),
        patch(
            "a test that fails",
            OPERATIONS,
            &status,
            json!([{"op": "test", "path": "/metadata/uid", "value": NOBODY}]),
            422,
            "the server rejected our request",
        ),
        patch(
            "an old version",
            MERGE,
            &status,
            json!({"metadata": {"resourceVersion": "1"}}),
            409,
            "the object has been modified",
        ),
        patch(
            "an annotation that is no text",
            MERGE,
            &one,
            json!({"metadata": {"annotations": {"x": 5}}}),
            422,
            "patch: Invalid value",
        ),
        patch(
            "another name",
            MERGE,
            &one,
            json!({"metadata": {"name": "b"}}),
            400,
            "does not match the name on the URL",
        ),
        patch(
            "spec through the status",
            MERGE,
            &status,
            json!({"metadata": {"annotations": {"k": "v"}}, "spec": {"nodeName": "other"}}),
            200,
            "\"nodeName\":\"n1\"",
        ),
        patch("a finalizer", MERGE, &one, json!({"metadata": {"finalizers": ["a.b/c"]}}), 200, ""),
        patch(
            "a finalizer without domain",
            MERGE,
            &one,
            json!({"metadata": {"finalizers": ["nodomain"]}}),
            422,
            "name is neither a standard finalizer name nor is it fully qualified",
        ),
        delete("another uid, deleted", &one, json!({"preconditions": {"uid": NOBODY}}), 409, "Conflict"),
        delete("gracefully", &one, Value::Null, 200, "\"deletionGracePeriodSeconds\":30"),
        delete("at last", &one, json!({"gracePeriodSeconds": 0}), 200, ""),
        get("held by its finalizer", &one, 200, "\"deletionGracePeriodSeconds\":0"),
        patch(
            "one more finalizer",
            MERGE,
            &one,
            json!({"metadata": {"finalizers": ["a.b/c", "d.e/f"]}}),
            422,
            "no new finalizers can be added if the object is being deleted",
        ),
        patch("no finalizer", MERGE, &one, json!({"metadata": {"finalizers": null}}), 200, ""),
        get("gone", &one, 404, "NotFound"),
        patch(
            "applied without a manager",
            APPLY,
            &one,
            pod("a", json!({})),
            422,
            "fieldManager: Required value",
        ),
        patch(
            "applied with an unknown field",
            APPLY,
            &format!("{one}?fieldManager=x"),
            pod("a", json!({"foo": 1})),
            500,
            ".spec.foo: field not declared in schema",
        ),
        patch(
            "applied with an item twice",
            APPLY,
            &format!("{one}?fieldManager=x"),
            pod("a", json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "j"}]})),
            500,
            "failed to create typed patch object (/a; /v1, Kind=Pod): .spec.containers: duplicate entries for key [name=\"c\"]",
        ),
    ]
}

fn pods() -> Vec<Case> {
    let pods = "/api/v1/namespaces/default/pods";
    let status = format!("{pods}/p/status");
    vec![
        create("a pod", pods, pod("p", json!({"nodeName": "n1"})), 201, ""),
        create(
            "a port's name",
            pods,
            pod(
                "q",
                json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "name": "A_"}]}]}),
            ),
            422,
            "spec.containers[0].ports[0].name",
        ),
        patch(
            "two addresses of a family",
            MERGE,
            &status,
            json!({"status": {"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}, {"ip": "10.1.1.2"}]}}),
            422,
            "may specify no more than one IP for each IP family",
        ),
        patch(
            "the one address decides",
            MERGE,
            &status,
            json!({"status": {"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.9"}]}}),
            200,
            "\"podIPs\":[{\"ip\":\"10.1.1.1\"}]",
        ),
        patch(
            "a list that is changed alone",
            MERGE,
            &status,
            json!({"status": {"podIPs": [{"ip": "zz"}]}}),
            200,
            "\"podIPs\":[{\"ip\":\"10.1.1.1\"}]",
        ),
        get("by address", &format!("{pods}?fieldSelector=status.podIPs%3D10.1.1.1"), 200, "items"),
        get("by node", &format!("{pods}?fieldSelector=spec.nodeName%3Dn1"), 200, "\"name\":\"p\""),
        get(
            "by an unknown field",
            &format!("{pods}?fieldSelector=spec.foo%3Dn1"),
            400,
            "field label not supported: spec.foo",
        ),
    ]
}

fn nodes() -> Vec<Case> {
    let (one, status) = ("/api/v1/nodes/n1", "/api/v1/nodes/n1/status");
    let two = json!({"status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}, {"type": "InternalIP", "address": "fd00::1"}]}});
    let taint = json!({"key": "a", "effect": "NoSchedule"});
    vec![
        create("a node", "/api/v1/nodes", object("v1", "Node", "n1", json!({})), 201, ""),
        patch("two addresses, merged", MERGE, status, two.clone(), 200, "fd00::1"),
        patch(
            "two addresses, applied",
            APPLY,
            &format!("{one}?fieldManager=x"),
            object("v1", "Node", "n1", two),
            500,
            "failed to create typed patch object (/n1; /v1, Kind=Node): .status.addresses: duplicate entries for key [type=\"InternalIP\"]",
        ),
        patch(
            "a pod range",
            MERGE,
            one,
            json!({"spec": {"podCIDR": "10.0.0.0/24"}}),
            200,
            "\"podCIDRs\":[\"10.0.0.0/24\"]",
        ),
        patch(
            "another pod range",
            MERGE,
            one,
            json!({"spec": {"podCIDR": "10.0.1.0/24"}}),
            422,
            "node updates may not change podCIDR",
        ),
        create(
            "two ranges of a family",
            "/api/v1/nodes",
            object(
                "v1",
                "Node",
                "n2",
                json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}}),
            ),
            422,
            "may specify no more than one CIDR for each IP family",
        ),
        create(
            "a range that is none",
            "/api/v1/nodes",
            object("v1", "Node", "n2", json!({"spec": {"podCIDR": "zz"}})),
            422,
            "must be a valid CIDR value",
        ),
        patch(
            "a taint twice",
            MERGE,
            one,
            json!({"spec": {"taints": [taint, taint]}}),
            422,
            "Duplicate value",
        ),
    ]
}

fn services() -> Vec<Case> {
    let (path, dry) =
        ("/api/v1/namespaces/default/services", "/api/v1/namespaces/default/services?dryRun=All");
    let balancer = |ingress: Value| json!({"status": {"loadBalancer": {"ingress": [ingress]}}});
    let lb = format!("{path}/lb/status");
    let mut named = service(json!({}));
    named["metadata"]["name"] = json!("1a");
    let mut external = service(json!({"type": "LoadBalancer"}));
    external["metadata"]["name"] = json!("lb");
    vec![
        create("a name that begins with a digit", dry, named, 201, ""),
        create(
            "an unknown distribution",
            dry,
            service(json!({"trafficDistribution": "Foo"})),
            422,
            "spec.trafficDistribution: Unsupported value",
        ),
        create(
            "a policy for outside, from inside",
            dry,
            service(json!({"externalTrafficPolicy": "Local"})),
            422,
            "may only be set for externally-accessible services",
        ),
        create(
            "an unknown policy",
            dry,
            service(json!({"type": "NodePort", "externalTrafficPolicy": "Foo"})),
            422,
            "spec.externalTrafficPolicy: Unsupported value",
        ),
        create(
            "an external address",
            dry,
            service(json!({"externalIPs": ["1.2.3.4"]})),
            201,
            "\"externalTrafficPolicy\":\"Cluster\"",
        ),
        create(
            "an external loopback",
            dry,
            service(json!({"externalIPs": ["127.0.0.1"]})),
            422,
            "may not be in the loopback range",
        ),
        create(
            "an external nowhere",
            dry,
            service(json!({"externalIPs": ["0.0.0.0"]})),
            422,
            "may not be unspecified",
        ),
        create(
            "an external neighbour",
            dry,
            service(json!({"externalIPs": ["fe80::1"]})),
            422,
            "may not be in the link-local range",
        ),
        create(
            "affinity without time",
            dry,
            service(
                json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}),
            ),
            422,
            "must be greater than 0 and less than 86400",
        ),
        create(
            "a source range with more bits",
            dry,
            service(json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]})),
            422,
            "must not have bits set beyond the prefix length",
        ),
        create(
            "a target in capitals",
            dry,
            service(json!({"ports": [{"port": 1, "targetPort": "A_B"}]})),
            422,
            "spec.ports[0].targetPort",
        ),
        create(
            "a selector with a space",
            dry,
            service(json!({"selector": {"a b": "c"}})),
            422,
            "spec.selector",
        ),
        create("a load balancer", path, external, 201, ""),
        patch("its address", MERGE, &lb, balancer(json!({"ip": "5.5.5.5"})), 200, "5.5.5.5"),
        patch(
            "no address",
            MERGE,
            &lb,
            balancer(json!({"ip": "zz"})),
            422,
            "status.loadBalancer.ingress[0].ip",
        ),
        patch(
            "an unknown mode",
            MERGE,
            &lb,
            balancer(json!({"ip": "5.5.5.5", "ipMode": "Bar"})),
            422,
            "ipMode: Unsupported value",
        ),
        patch(
            "a balancer where none is",
            MERGE,
            &format!("{path}/kubernetes/status"),
            balancer(json!({"ip": "5.5.5.5"})),
            422,
            "may only be used when `spec.type` is 'LoadBalancer'",
        ),
    ]
}

fn policies() -> Vec<Case> {
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies?dryRun=All";
    let from = |cidr: &str| policy(json!({"ingress": [{"from": [{"ipBlock": {"cidr": cidr}}]}]}));
    let except = policy(
        json!({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.1/16"]}}]}]}),
    );
    let port = |port: Value| policy(json!({"ingress": [{"ports": [{"port": port}]}]}));
    let term = |operator: &str, values: Value| {
        policy(
            json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}}),
        )
    };
    let namespaces =
        policy(json!({"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"a": "c d"}}}]}]}));
    vec![
        create("everything", path, from("0.0.0.0/0"), 201, ""),
        create("no range", path, from("10.0.0.0"), 422, "must be a valid CIDR value"),
        create(
            "bits beyond the prefix",
            path,
            from("10.0.0.1/8"),
            422,
            "must not have bits set beyond the prefix length",
        ),
        create(
            "the same for IPv6",
            path,
            from("fd00::1/64"),
            422,
            "must not have bits set beyond the prefix length",
        ),
        create("leading zeros", path, from("010.0.0.0/8"), 422, "must not have leading 0s"),
        create(
            "a mapped range",
            path,
            from("::ffff:1.2.3.0/120"),
            422,
            "must not have an IPv4-mapped IPv6 address",
        ),
        create("bits in an exception", path, except, 422, "ipBlock.except[0]"),
        create("a port", path, port(json!("http")), 201, ""),
        create("a port in capitals", path, port(json!("HTTP_X")), 422, "spec.ingress[0].ports[0].port"),
        create(
            "a long name of a port",
            path,
            port(json!("abcdefghijklmnopq")),
            422,
            "must be no more than 15 characters",
        ),
        create(
            "in nothing",
            path,
            term("In", json!([])),
            422,
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        create(
            "exists with values",
            path,
            term("Exists", json!(["x"])),
            422,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        create("an unknown operator", path, term("Foo", json!([])), 422, "not a valid selector operator"),
        create(
            "a label with a space",
            path,
            policy(json!({"podSelector": {"matchLabels": {"a b": "c"}}})),
            422,
            "spec.podSelector.matchLabels",
        ),
        create("a namespace's label with a space", path, namespaces, 422, "namespaceSelector.matchLabels"),
    ]
}

fn small_kinds() -> Vec<Case> {
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?dryRun=All";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = format!("{leases}/l");
    let renewed = |time: &str| json!({"spec": {"renewTime": time}});
    let held = json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 10}});
    let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let mut event = object(
        "events.k8s.io/v1",
        "Event",
        "e",
        json!({"regarding": about, "reason": "R", "note": "n", "type": "Normal"}),
    );
    let timeless = event.clone();
    for (field, value) in [
        ("eventTime", "2026-01-01T00:00:00.000000Z"),
        ("reportingController", "a.b/c"),
        ("reportingInstance", "i"),
        ("action", "A"),
    ] {
        event[field] = json!(value);
    }
    vec![
        create("an address", slices, slice("IPv4", "10.1.1.1"), 201, ""),
        create(
            "an address of the other family",
            slices,
            slice("IPv4", "fd00::1"),
            422,
            "must be an IPv4 address",
        ),
        create("loopback", slices, slice("IPv4", "127.0.0.1"), 422, "may not be in the loopback range"),
        create("a neighbour", slices, slice("IPv6", "fe80::1"), 422, "may not be in the link-local range"),
        create(
            "a group of neighbours",
            slices,
            slice("IPv4", "224.0.0.1"),
            422,
            "may not be in the link-local multicast range",
        ),
        create(
            "a mapped address",
            slices,
            slice("IPv6", "::ffff:1.2.3.4"),
            422,
            "must not be an IPv4-mapped IPv6 address",
        ),
        create("a lease", leases, object("coordination.k8s.io/v1", "Lease", "l", held), 201, ""),
        patch("held by nobody", MERGE, &lease, json!({"spec": {"holderIdentity": ""}}), 200, ""),
        patch(
            "for no time",
            MERGE,
            &lease,
            json!({"spec": {"leaseDurationSeconds": 0}}),
            422,
            "must be greater than 0",
        ),
        patch("microseconds", MERGE, &lease, renewed("2026-01-01T00:00:00.000000Z"), 200, ""),
        patch("seconds", MERGE, &lease, renewed("2026-01-01T00:00:00Z"), 422, "patch: Invalid value"),
        patch(
            "nanoseconds",
            MERGE,
            &lease,
            renewed("2026-01-01T00:00:00.123456789Z"),
            422,
            "patch: Invalid value",
        ),
        create("an event", events, event, 201, ""),
        create("an event without time", events, timeless, 422, "eventTime: Required value"),
    ]
}

fn lists() -> Vec<Case> {
    let pods = "/api/v1/namespaces/default/pods";
    vec![
        get(
            "a match without version",
            &format!("{pods}?resourceVersionMatch=Exact"),
            422,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        get(
            "initial events of a list",
            &format!("{pods}?sendInitialEvents=true"),
            422,
            "sendInitialEvents is forbidden for list",
        ),
        get(
            "initial events without match",
            &format!("{pods}?watch=1&sendInitialEvents=true"),
            422,
            "resourceVersionMatch",
        ),
        get(
            "a token that is none",
            &format!("{pods}?limit=1&continue=zzz"),
            400,
            "continue key is not valid",
        ),
        get(
            "an unknown resource",
            "/api/v1/namespaces/default/foos",
            404,
            "the server could not find the requested resource",
        ),
    ]
}
