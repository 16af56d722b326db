//! Rules of the API that need no HTTP: custom resources, namespaces, services.

use std::net::TcpListener;

use devapi::{ApiError, Options, Server, Store};
use serde_json::{Value, json};

async fn server() -> Server {
    Server::start(Options::new(TcpListener::bind("127.0.0.1:0").expect("a port"))).await.expect("server")
}

fn crd(schema: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema}},
                {"name": "v1alpha1", "served": true, "storage": false,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec})
}

fn fields(error: &ApiError) -> Vec<String> {
    let causes = error.details.as_ref().and_then(|d| d["causes"].as_array().cloned()).unwrap_or_default();
    causes.iter().filter_map(|c| c["field"].as_str().map(String::from)).collect()
}

#[tokio::test]
async fn schemas_default_prune_and_validate() {
    let server = server().await;
    let store = server.store();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "count": {"type": "integer", "format": "int32", "minimum": 0, "exclusiveMinimum": true, "default": 1},
        "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
        "mode": {"type": "string", "enum": ["A", "B"]},
        "list": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"},
                "on": {"type": "boolean", "default": true}}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "either": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "port": {"x-kubernetes-int-or-string": true},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}}}}}});
    store.create(crd(schema)).expect("structural");
    let mut spec = json!({"name": "abc", "list": [{"id": "x", "extra": 1}], "any": {"kept": {"deep": 1}}, "port": "http",
        "labels": {"k": "v"}, "unknown": true});
    let made = store.create(thing(spec.clone())).expect("valid");
    spec["count"] = json!(1);
    spec["list"] = json!([{"id": "x", "on": true}]);
    spec.as_object_mut().expect("object").remove("unknown");
    assert_eq!(made["spec"], spec);
    assert_eq!(made["metadata"]["generation"], 1);

    let cases = [
        (json!({"count": 0}), "spec.count"),
        (json!({"count": "1"}), "spec.count"),
        (json!({"count": 3_000_000_000u64}), "spec.count"),
        (json!({"name": "a"}), "spec.name"),
        (json!({"name": "abcde"}), "spec.name"),
        (json!({"name": "A1"}), "spec.name"),
        (json!({"mode": "C"}), "spec.mode"),
        (json!({"list": [{"id": "x"}, {"id": "x"}]}), "spec.list[1]"),
        (json!({"list": [{}]}), "spec.list[0].id"),
        (json!({"list": [{"id": "1"}, {"id": "2"}, {"id": "3"}]}), "spec.list"),
        (json!({"set": ["a", "a"]}), "spec.set[1]"),
        (json!({"either": {}}), "spec.either"),
        (json!({"either": {"a": "", "b": ""}}), "spec.either"),
        (json!({"port": true}), "spec.port"),
        (json!({"labels": {"k": "long"}}), "spec.labels[k]"),
    ];
    for (spec, field) in cases {
        let error = store.create(thing(spec.clone())).expect_err("invalid");
        assert_eq!(error.code, 422, "{spec}: {error}");
        assert!(fields(&error).iter().any(|f| f == field), "{spec}: {error}");
    }

    let status = json!({"status": {"x": 1}, "spec": {"name": "zzz"}});
    store.merge("things.example.com", "default", "t", &status, true).expect("status");
    let now = store.get("things.example.com", "default", "t").expect("there");
    assert_eq!((&now["spec"]["name"], &now["metadata"]["generation"]), (&json!("abc"), &json!(1)));
    let changed = store.merge("things.example.com", "default", "t", &json!({"spec": {"name": "zz"}}), false);
    assert_eq!(changed.expect("changed")["metadata"]["generation"], 2);
}

#[tokio::test]
async fn crds_that_are_not_structural_are_refused() {
    let server = server().await;
    let schemas = [
        json!({"type": "string"}),
        json!({"type": "object", "properties": {"a": {}}}),
        json!({"type": "object", "properties": {"a": {"type": "array"}}}),
        json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}}}),
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}),
        json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}}}),
        json!({"type": "object", "anyOf": [{"type": "object"}]}),
        json!({"type": "object", "properties": {"a": {"type": "object", "$ref": "x"}}}),
    ];
    for schema in schemas {
        let error = server.store().create(crd(schema.clone())).expect_err("refused");
        assert_eq!(error.code, 422, "{schema}");
    }
    let mut wrong = crd(json!({"type": "object"}));
    wrong["metadata"]["name"] = json!("other.example.com");
    assert_eq!(fields(&server.store().create(wrong).expect_err("name")), ["metadata.name"]);
}

#[tokio::test]
async fn policies_of_administrators_are_judged_by_their_definitions() {
    let server = server().await;
    let store = server.store();
    for text in [
        include_str!("../../scenario/data/crds/adminnetworkpolicies.yaml"),
        include_str!("../../scenario/data/crds/baselineadminnetworkpolicies.yaml"),
        include_str!("../../scenario/data/crds/clusternetworkpolicies.yaml"),
    ] {
        store.create(serde_norway::from_str(text).expect("YAML")).expect("a definition in use");
    }
    let admin = |kind: &str, name: &str, version: &str, spec: Value| {
        json!({"apiVersion": format!("policy.networking.k8s.io/{version}"), "kind": kind,
            "metadata": {"name": name}, "spec": spec})
    };
    let with_network = |name: &str, network: &str| {
        admin(
            "AdminNetworkPolicy",
            name,
            "v1alpha1",
            json!({"priority": 5, "subject": {"namespaces": {}},
                "egress": [{"action": "Allow", "to": [{"networks": [network]}]}]}),
        )
    };
    store.create(with_network("good", "10.0.0.0/9")).expect("valid");
    let subject = json!({"namespaces": {}});
    let baseline =
        |name: &str| admin("BaselineAdminNetworkPolicy", name, "v1alpha1", json!({"subject": subject}));
    store.create(baseline("default")).expect("the one baseline");
    let refused = [
        (with_network("bad", "10.0.0.0/99"), "spec.egress[0].to[0].networks[0]"),
        (baseline("another"), "<nil>"),
        (
            admin("AdminNetworkPolicy", "net", "v1alpha1", json!({"priority": 1001, "subject": subject})),
            "spec.priority",
        ),
        (
            admin(
                "ClusterNetworkPolicy",
                "c",
                "v1alpha2",
                json!({"tier": "Admin", "priority": 1, "subject": subject,
                "egress": [{"action": "Accept", "to": [{"networks": ["10.0.0.0/99"]}]}]}),
            ),
            "spec.egress[0].to[0].networks[0]",
        ),
    ];
    for (object, field) in refused {
        let error = store.create(object.clone()).expect_err("refused");
        assert!(fields(&error).contains(&field.to_owned()), "{object}: {error:?}");
    }
}

async fn gone(store: &Store, resource: &str, name: &str) -> bool {
    for _ in 0..1000 {
        if store.get(resource, "", name).is_none() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn namespaces_end_with_their_content() {
    let server = server().await;
    let store = server.store();
    store
        .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}))
        .expect("namespace");
    let account = store.get("serviceaccounts", "n", "default");
    assert!(account.is_some(), "every namespace has a default service account");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": "x", "containers": [{"name": "c", "image": "i"}]}});
    store.create(pod.clone()).expect("pod");
    store.delete("namespaces", "", "n", false).expect("marked");
    assert!(!gone(store, "namespaces", "n").await, "a pod still runs in it");
    let namespace = store.get("namespaces", "", "n").expect("waits");
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let mut late = pod;
    late["metadata"]["name"] = json!("late");
    let error = store.create(late).expect_err("terminating");
    assert_eq!((error.code, error.reason), (403, "Forbidden"));
    assert!(error.message.contains("because it is being terminated"), "{error}");
    let waiting = store.get("pods", "n", "p").expect("waits for its kubelet");
    assert_eq!(waiting["metadata"]["deletionGracePeriodSeconds"], 30);
    store.delete("pods", "n", "p", true).expect("as a kubelet does");
    assert!(gone(store, "namespaces", "n").await);
    assert!(store.delete("namespaces", "", "default", false).is_err(), "default may not go");
}

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects() {
    let server = server().await;
    let store = server.store();
    store.create(crd(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))).expect("crd");
    store.create(thing(json!({"a": 1}))).expect("thing");
    store.delete("customresourcedefinitions", "", "things.example.com", false).expect("marked");
    assert!(gone(store, "customresourcedefinitions", "things.example.com").await);
    assert!(store.create(thing(json!({}))).is_err());
}

#[tokio::test]
async fn services_keep_their_addresses() {
    let server = server().await;
    let store = server.store();
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    };
    let one = store.create(service("one")).expect("service");
    assert_eq!(
        store.get("services", "default", "kubernetes").expect("first")["spec"]["clusterIP"],
        "10.96.0.1"
    );
    let address = one["spec"]["clusterIP"].as_str().expect("address").to_string();
    assert!(address.starts_with("10.96."));
    // An update without the allocated fields keeps them.
    let mut bare = service("one");
    bare["metadata"]["namespace"] = json!("default");
    bare["metadata"]["labels"] = json!({"a": "b"});
    let updated = store.update(bare).expect("updated");
    assert_eq!(updated["spec"]["clusterIP"], address.as_str());
    assert_eq!(updated["spec"]["ports"], one["spec"]["ports"]);
    let moved = json!({"spec": {"clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"]}});
    let error = store.merge("services", "default", "one", &moved, false).expect_err("immutable");
    assert!(error.message.contains("may not change once set"), "{error}");
    let mut same = service("two");
    same["spec"]["clusterIP"] = json!(address);
    assert!(store.create(same.clone()).expect_err("taken").message.contains("already allocated"));
    store.delete("services", "default", "one", false).expect("deleted");
    assert_eq!(store.create(same).expect("free again")["spec"]["clusterIP"], address.as_str());
}
