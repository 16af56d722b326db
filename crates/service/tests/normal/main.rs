//! Services in normal form: what is read, what is joined, which endpoints a port has.

mod endpoints;
mod objects;
mod slices;

use serde_json::{Value, json};
use service::{Place, Services};

/// The place most tests look from.
pub(crate) const HERE: Place<'static> = Place { node: "node1", zone: Some("east") };

pub(crate) fn service(spec: Value) -> kapi::Service {
    let json = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}, "spec": spec});
    serde_json::from_value(json).expect("a Service")
}

/// Service `shop/web` with one port `http`.
pub(crate) fn plain() -> kapi::Service {
    service(json!({"clusterIP": "10.96.0.9", "ports": [{"name": "http", "port": 80}]}))
}

pub(crate) fn slice(name: &str, port: u16, endpoints: Value) -> kapi::EndpointSlice {
    let json = json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": port}], "endpoints": endpoints});
    serde_json::from_value(json).expect("an EndpointSlice")
}

/// The cluster-wide and the local endpoints of the first port of `shop/web`, as `ip:port`.
pub(crate) fn seen(table: &Services, place: Place<'_>) -> (Vec<String>, Vec<String>) {
    let view = table.view(&kapi::ServiceKey::new("shop", "web"), place).expect("the service");
    let text =
        |list: &[service::Backend]| list.iter().map(|one| format!("{}:{}", one.ip, one.port)).collect();
    (text(&view.ports[0].cluster), text(&view.ports[0].local))
}
