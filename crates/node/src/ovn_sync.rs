//! Waits until OVN on this node has carried out what stands in the Northbound database. OVN counts for whoever asks:
//! `nb_cfg` is raised, and once everything written before is in the switch, `hv_cfg` follows.

use std::time::Duration;

use ovsdb::{Cache, Endpoint, MonitorSpec, Mutation, Op, Options, Replica};
use tokio::time::timeout;

const TABLE: &str = "NB_Global";
const ASKED: &str = "nb_cfg";
const DONE: &str = "hv_cfg";

/// Asks, and waits for the answer. The error says who did not answer.
pub(crate) async fn carried_out(northbound: &str, patience: Duration) -> Result<(), String> {
    let endpoint: Endpoint = northbound.parse().map_err(|error| format!("{northbound}: {error}"))?;
    if let Endpoint::Unix(socket) = &endpoint
        && !socket.exists()
    {
        return Err(format!("there is no Northbound database at {northbound}"));
    }
    let spec = MonitorSpec::none().table(TABLE, &[ASKED, DONE]);
    let replica = Replica::connect(Options::new([endpoint], "OVN_Northbound").monitor(spec));
    let database = timeout(patience, replica.ready());
    database.await.map_err(|_| format!("the Northbound database at {northbound} does not answer"))?;
    // A database that nobody has used yet has no such row, and nothing to carry out.
    let global = |cache: &Cache| cache.rows(TABLE).next().and_then(|row| Some((row.uuid(), row.int(ASKED)?)));
    let Some((uuid, before)) = replica.read(global) else { return Ok(()) };
    let raise = Op::mutate(TABLE, uuid, vec![Mutation::add(ASKED, 1)]);
    replica.transact(vec![raise]).await.map_err(|error| format!("{northbound}: {error}"))?;
    let done = replica.wait_for(|cache| {
        let done = cache.rows(TABLE).next()?.int(DONE)?;
        (done > before).then_some(())
    });
    timeout(patience, done).await.map(drop).map_err(|_| {
        "ovn-northd or ovn-controller have not carried out what the Northbound database says".to_owned()
    })
}
