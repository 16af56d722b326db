//! The bridge must not learn that the node's MAC is behind the patch port, where the gateway router uses it too.

use std::path::Path;

use net::Mac;

use crate::unixctl;

/// Undoes [`pin`]; an entry that is not there, or a switch that is not, is as good.
pub(crate) async fn unpin(run_dir: &Path, bridge: &str, vlan: u16, mac: Mac) {
    for socket in unixctl::sockets(run_dir, "ovs-vswitchd.") {
        let args = [bridge, &vlan.to_string(), &mac.to_string()];
        let _ = unixctl::call(&socket, "fdb/del", &args).await;
    }
}

/// Pins the MAC to the host's side of the bridge. Lasts until ovs-vswitchd ends. The error says who objects to what.
pub(crate) async fn pin(run_dir: &Path, bridge: &str, vlan: u16, mac: Mac) -> Result<(), String> {
    let mut problem = format!("no socket ovs-vswitchd.*.ctl in {}", run_dir.display());
    for socket in unixctl::sockets(run_dir, "ovs-vswitchd.") {
        let args = [bridge, bridge, &vlan.to_string(), &mac.to_string()];
        match unixctl::call(&socket, "fdb/add", &args).await {
            Ok(_) => return Ok(()),
            Err(error) => problem = format!("{}: {error}", socket.display()),
        }
    }
    Err(problem)
}
