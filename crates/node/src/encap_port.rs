//! A tunnel port other than Geneve's own. ovn-controller writes the Encap row of this chassis without it, so the agent
//! keeps adding it, in the Southbound database of this node's zone.

use std::time::Duration;

use kube_io::Backoff;
use ovsdb::{Cache, Datum, Endpoint, MonitorSpec, Mutation, Op, Options, Replica};
use tracing::{info, warn};

use crate::ovs;
use crate::settings::Settings;

/// Geneve's registered port.
pub(crate) const DEFAULT: u16 = 6081;

const OPTION: &str = "dst_port";

/// Operations that give the tunnel endpoints of `chassis` this port; none if they have it.
pub(crate) fn plan(cache: &Cache, chassis: &str, port: u16) -> Vec<Op> {
    let wanted = port.to_string();
    cache
        .rows("Encap")
        .filter(|row| row.str("chassis_name") == Some(chassis))
        .filter(|row| row.key("options", OPTION) != Some(&wanted))
        .map(|row| {
            let mut mutations = Vec::new();
            if row.key("options", OPTION).is_some() {
                mutations.push(Mutation::delete("options", Datum::set([OPTION])));
            }
            mutations.push(Mutation::insert("options", Datum::map([(OPTION, wanted.as_str())])));
            Op::mutate("Encap", row.uuid(), mutations)
        })
        .collect()
}

/// Keeps the port for ever; does nothing where it is Geneve's own.
pub(crate) async fn keep(settings: &Settings, vswitch: &Replica) {
    let endpoint = settings.ovn_remote.parse::<Endpoint>();
    let (false, Ok(endpoint)) = (settings.encap.port == DEFAULT, endpoint) else {
        return std::future::pending().await;
    };
    let spec = MonitorSpec::none().table("Encap", &["chassis_name", "options"]);
    let southbound = Replica::connect(Options::new([endpoint], "OVN_Southbound").monitor(spec));
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    loop {
        let chassis = vswitch.wait_for(|cache| ovs::system_id(cache).map(str::to_owned)).await;
        let planned =
            |cache: &Cache| Some(plan(cache, &chassis, settings.encap.port)).filter(|ops| !ops.is_empty());
        let ops = southbound.wait_for(planned).await;
        match southbound.transact(ops).await {
            Ok(_) => {
                info!(port = settings.encap.port, chassis, "set the tunnel port in the Southbound database");
                backoff.reset();
            }
            Err(error) => {
                warn!(%error, "cannot set the tunnel port in the Southbound database");
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ovsdb::{Row, Schema, Update, Uuid};

    use super::*;

    fn cache(encaps: &[(&str, Option<&str>)]) -> Cache {
        let schema = Arc::new(
            Schema::parse(
                br#"{"name":"OVN_Southbound","version":"21.0.0","tables":{"Encap":{"columns":{
                "chassis_name":{"type":"string"},
                "options":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}"#,
            )
            .unwrap(),
        );
        let mut cache = Cache::new(schema.clone());
        let mut update = Update::empty(schema.clone());
        for (number, (chassis, port)) in encaps.iter().enumerate() {
            let options = port.map(|port| (OPTION, port)).into_iter().chain([("csum", "true")]);
            let id = Uuid::v5(&Uuid::default(), number.to_string().as_bytes());
            let row = [("chassis_name", Datum::from(*chassis)), ("options", Datum::map(options))];
            update.put(Row::new(schema.table("Encap").unwrap(), id, row));
        }
        cache.apply(&update);
        cache
    }

    #[test]
    fn only_our_endpoints_without_the_port_are_changed() {
        let cache = cache(&[("us", None), ("us", Some("7000")), ("us", Some("9999")), ("them", None)]);
        let ops = plan(&cache, "us", 7000);
        let mutations: Vec<usize> = ops
            .iter()
            .map(|op| match op {
                Op::Mutate { mutations, .. } => mutations.len(),
                other => panic!("unexpected {other:?}"),
            })
            .collect();
        assert_eq!(mutations.iter().sum::<usize>(), 3, "one insert, and one replacement: {ops:?}");
        assert_eq!(ops.len(), 2);
        assert_eq!(plan(&cache, "nobody", 7000), []);
    }
}
