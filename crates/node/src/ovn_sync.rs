//! Waits until OVN on this node has carried out a router. OVN counts for whoever asks: once the router stands in the
//! Northbound database, `nb_cfg` is raised, and when everything written before is in the switch, `hv_cfg` follows.

use std::time::Duration;

use ovsdb::{Endpoint, MonitorSpec, Mutation, Op, Options, Replica};
use tokio::time::{Instant, timeout_at};

const TABLE: &str = "NB_Global";
const ROUTER: &str = "Logical_Router";
const ASKED: &str = "nb_cfg";
const DONE: &str = "hv_cfg";

/// Waits for the router of this name, asks, and waits for the answer; all within `patience`. The error says who did
/// not answer.
pub(crate) async fn carried_out(northbound: &str, router: &str, patience: Duration) -> Result<(), String> {
    let endpoint: Endpoint = northbound.parse().map_err(|error| format!("{northbound}: {error}"))?;
    if let Endpoint::Unix(socket) = &endpoint
        && !socket.exists()
    {
        return Err(format!("there is no Northbound database at {northbound}"));
    }
    let spec = MonitorSpec::none().table(TABLE, &[ASKED, DONE]).table(ROUTER, &["name"]);
    let replica = Replica::connect(Options::new([endpoint], "OVN_Northbound").monitor(spec));
    let deadline = Instant::now() + patience;
    let database = timeout_at(deadline, replica.ready());
    database.await.map_err(|_| format!("the Northbound database at {northbound} does not answer"))?;
    let written = replica.wait_for(|cache| {
        cache.rows(ROUTER).find(|row| row.str("name") == Some(router))?;
        cache.rows(TABLE).next().and_then(|row| Some((row.uuid(), row.int(ASKED)?)))
    });
    let written = timeout_at(deadline, written).await;
    let (uuid, before) = written.map_err(|_| format!("nobody has made the router {router}"))?;
    let raise = Op::mutate(TABLE, uuid, vec![Mutation::add(ASKED, 1)]);
    replica.transact(vec![raise]).await.map_err(|error| format!("{northbound}: {error}"))?;
    let done = replica.wait_for(|cache| {
        let done = cache.rows(TABLE).next()?.int(DONE)?;
        (done > before).then_some(())
    });
    timeout_at(deadline, done).await.map(drop).map_err(|_| {
        "ovn-northd or ovn-controller have not carried out what the Northbound database says".to_owned()
    })
}
