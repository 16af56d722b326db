//! Bandwidth limits as rows: traffic from the pod is policed on its Interface, traffic towards the pod is shaped by
//! the Port's QoS.

use std::collections::BTreeSet;

use ovsdb::{Cache, Datum, Op, Uuid};

use super::{bandwidth::Limits, plug::PlugIds};

/// A shaper with its one queue.
pub(crate) fn insert_qos(ids: &PlugIds, sandbox: &str, rate: u64) -> [Op; 2] {
    let own = || ("external_ids".into(), Datum::map([("sandbox", sandbox)]));
    [
        Op::insert("Queue", ids.queue, vec![("other_config".into(), max_rate(rate)), own()]),
        Op::insert(
            "QoS",
            ids.qos,
            vec![
                ("type".into(), Datum::scalar("linux-htb")),
                ("other_config".into(), max_rate(rate)),
                ("queues".into(), Datum::map([(0i64, ids.queue)])),
                own(),
            ],
        ),
    ]
}

/// Deletes the shapers of a sandbox and those the given ports use.
pub(crate) fn remove_qos(cache: &Cache, sandbox: &str, ports: &[Uuid]) -> Vec<Op> {
    let mut qos: BTreeSet<Uuid> = by_sandbox(cache, "QoS", sandbox).collect();
    let mut queues: BTreeSet<Uuid> = by_sandbox(cache, "Queue", sandbox).collect();
    for port in ports.iter().filter_map(|p| cache.row("Port", p)) {
        qos.extend(port.get("qos").into_iter().flat_map(Datum::uuids));
    }
    for row in qos.iter().filter_map(|q| cache.row("QoS", q)) {
        let values = row.get("queues").into_iter().flat_map(|d| d.pairs().iter());
        queues.extend(values.filter_map(|(_, queue)| queue.as_uuid()));
    }
    let delete = |table: &'static str| move |uuid: Uuid| Op::delete(table, uuid);
    qos.into_iter().map(delete("QoS")).chain(queues.into_iter().map(delete("Queue"))).collect()
}

/// What must change on a plugged port for it to have these limits; empty if it has.
pub(crate) fn change(
    cache: &Cache,
    port: Uuid,
    interface: Uuid,
    sandbox: &str,
    limits: &Limits,
    fresh: &PlugIds,
) -> Vec<Op> {
    let mut ops = Vec::new();
    let (Some(port_row), Some(row)) = (cache.row("Port", &port), cache.row("Interface", &interface)) else {
        return ops;
    };
    let (rate, burst) = limits.policing();
    if row.int("ingress_policing_rate") != Some(rate) || row.int("ingress_policing_burst") != Some(burst) {
        let columns = vec![
            ("ingress_policing_rate".into(), Datum::scalar(rate)),
            ("ingress_policing_burst".into(), Datum::scalar(burst)),
        ];
        ops.push(Op::update("Interface", interface, columns));
    }
    let current = port_row.get("qos").and_then(|d| d.uuids().next());
    let current_rate = current
        .and_then(|q| cache.row("QoS", &q))
        .and_then(|q| q.key("other_config", "max-rate"))
        .and_then(|r| r.parse::<u64>().ok());
    if current_rate == limits.ingress && current.is_some() == limits.ingress.is_some() {
        return ops;
    }
    let mut qos = Vec::new();
    if let Some(rate) = limits.ingress {
        ops.extend(insert_qos(fresh, sandbox, rate));
        qos.push(fresh.qos);
    }
    ops.push(Op::update("Port", port, vec![("qos".into(), Datum::set(qos))]));
    ops.extend(remove_qos(cache, sandbox, &[port]));
    ops
}

fn max_rate(rate: u64) -> Datum {
    Datum::map([("max-rate", rate.to_string())])
}

fn by_sandbox<'a>(cache: &'a Cache, table: &str, sandbox: &'a str) -> impl Iterator<Item = Uuid> + 'a {
    cache
        .table(table)
        .into_iter()
        .flat_map(move |t| t.find_key("external_ids", "sandbox", sandbox))
        .map(|row| row.uuid())
}
