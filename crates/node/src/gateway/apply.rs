//! Carries out what was planned: OpenFlow through `ovs-ofctl`, the firewall through `nft`, the rest through netlink.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use net::Mac;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::{debug, info};

use super::flows::Flow;
use super::guard::Guard;
use super::nft::{TABLE, Table};
use super::{Bridge, fdb, ofctl};
use crate::error::NodeError;
use crate::host_watch::Writers;
use crate::services::state::element;
use crate::services::{Delta, Turn};
use crate::settings::Settings;

/// How long one of the programs may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known to be in place, so that nobody is asked again.
#[derive(Debug, Default)]
pub(crate) struct InPlace {
    flows: Option<Programmed>,
    nft: Option<Table>,
    writers: Writers,
}

#[derive(Debug)]
struct Programmed {
    guard: Guard,
    /// Name and MAC of the bridge.
    bridge: (String, Mac),
    flows: Vec<Flow>,
}

impl InPlace {
    /// Nothing is known. The programs that change the firewall are told to `writers`.
    pub(crate) fn new(writers: Writers) -> InPlace {
        InPlace { writers, ..InPlace::default() }
    }

    /// Programs that have ended are no longer ours.
    pub(crate) fn forget_writers(&self) {
        self.writers.forget();
    }

    /// Brings the bridge's flows up to date; true if something was written.
    pub(crate) async fn flows(
        &mut self,
        settings: &Settings,
        bridge: &Bridge,
        wanted: Vec<Flow>,
        wake: &Arc<Notify>,
    ) -> Result<bool, NodeError> {
        let identity = (bridge.name.clone(), bridge.mac);
        if self.flows.take_if(|there| !there.guard.is_alive() || there.bridge != identity).is_some() {
            info!(bridge = bridge.name, "the bridge was started anew");
        }
        if self.flows.as_ref().is_some_and(|there| there.flows == wanted) {
            return Ok(false);
        }
        let run_dir = run_dir(settings);
        let socket = run_dir.join(format!("{}.mgmt", bridge.name));
        let target = format!("unix:{}", socket.display());
        let (lines, guard) = match self.flows.take() {
            Some(there) => (ofctl::bundle(&there.flows, &wanted), there.guard),
            None => {
                // First the guard: whatever is read afterwards is newer.
                let guard = Guard::connect(&socket, wake.clone()).await.map_err(|error| NodeError::Host {
                    what: format!("reach bridge {} at {target}", bridge.name),
                    reason: error.to_string(),
                })?;
                fdb::pin(&run_dir, &bridge.name, settings.gateway.vlan_id, bridge.mac).await.map_err(
                    |reason| NodeError::Host {
                        what: format!("pin {} to bridge {}", bridge.mac, bridge.name),
                        reason,
                    },
                )?;
                let current = dump(settings, &target).await?;
                let mut lines = ofctl::bundle(&current, &wanted);
                lines.extend(ofctl::fallback(&current));
                (lines, guard)
            }
        };
        let wrote = !lines.is_empty();
        if wrote {
            debug!(bridge = bridge.name, ?lines, "changing flows");
            send(settings, &target, &lines).await?;
            info!(bridge = bridge.name, changes = lines.len(), "flows of the gateway bridge corrected");
        }
        self.flows = Some(Programmed { guard, bridge: identity, flows: wanted });
        Ok(wrote)
    }

    /// Makes the changes of services, and only them. False if it is not known what they would change: then everything has
    /// to be looked at.
    pub(crate) async fn services(
        &mut self,
        settings: &Settings,
        bridge: Option<&str>,
        delta: &Delta,
    ) -> Result<bool, NodeError> {
        let firewall = self.service_elements(settings, delta).await?;
        let flows = match bridge {
            Some(bridge) => self.service_flows(settings, bridge, delta).await?,
            None => true,
        };
        Ok(firewall && flows)
    }

    async fn service_elements(&mut self, settings: &Settings, delta: &Delta) -> Result<bool, NodeError> {
        if delta.elements.is_empty() && delta.rules.is_none() {
            return Ok(true);
        }
        let Some(old) = self.nft.take() else { return Ok(false) };
        let mut table = old.clone();
        for Turn { place: (set, key), before, after } in &delta.elements {
            if let Some(before) = before {
                table.remove(set.0, &element(key, before.as_deref()));
            }
            if let Some(after) = after {
                table.insert(set.0, element(key, after.as_deref()));
            }
        }
        if let Some((chain, rules)) = &delta.rules {
            table.set_rules(chain, rules.clone());
        }
        self.nft = Some(old);
        self.nft(settings, table).await?;
        Ok(true)
    }

    async fn service_flows(
        &mut self,
        settings: &Settings,
        bridge: &str,
        delta: &Delta,
    ) -> Result<bool, NodeError> {
        if delta.old_flows.is_empty() && delta.new_flows.is_empty() {
            return Ok(true);
        }
        let Some(mut there) = self.flows.take_if(|there| there.guard.is_alive()) else { return Ok(false) };
        let lines = ofctl::bundle(&delta.old_flows, &delta.new_flows);
        if !lines.is_empty() {
            let target = format!("unix:{}", run_dir(settings).join(format!("{bridge}.mgmt")).display());
            send(settings, &target, &lines).await?;
            debug!(bridge, changes = lines.len(), "flows of services corrected");
        }
        there.flows.retain(|flow| !delta.old_flows.contains(flow));
        there.flows.extend(delta.new_flows.iter().cloned());
        there.flows.sort();
        self.flows = Some(there);
        Ok(true)
    }

    /// Has the flows looked at anew, because the bridge is not the gateway any more.
    pub(crate) fn forget_flows(&mut self) {
        self.flows = None;
    }

    /// Has the firewall table looked at anew, because somebody changed it.
    pub(crate) fn doubt_nft(&mut self) {
        self.nft = None;
    }

    /// Brings the firewall table up to date; true if something was written.
    pub(crate) async fn nft(&mut self, settings: &Settings, wanted: Table) -> Result<bool, NodeError> {
        let script = match &self.nft {
            Some(there) => wanted.update_script(there),
            None => {
                let mut list = vec!["list", "table"];
                list.extend(TABLE.split(' '));
                let listing = run(&settings.programs.nft, &list, None).await.unwrap_or_default();
                (!wanted.is_shown_by(&listing)).then(|| wanted.replace_script())
            }
        };
        let Some(script) = script else {
            self.nft = Some(wanted);
            return Ok(false);
        };
        // Until it succeeds nothing is known about what is there.
        self.nft = None;
        run_as(&settings.programs.nft, &["-f", "-"], Some(&script), |process| self.writers.add(process))
            .await
            .map_err(|reason| NodeError::Host { what: format!("write firewall table {TABLE}"), reason })?;
        info!("firewall table {TABLE} corrected");
        self.nft = Some(wanted);
        Ok(true)
    }
}

/// Removes our flows from a bridge.
pub(crate) async fn remove_flows(settings: &Settings, bridge: &str) -> Result<(), NodeError> {
    let socket = run_dir(settings).join(format!("{bridge}.mgmt"));
    if !socket.exists() {
        return Ok(());
    }
    let target = format!("unix:{}", socket.display());
    let current = dump(settings, &target).await?;
    let mut lines = ofctl::bundle(&current, &[]);
    lines.extend(ofctl::fallback(&current));
    if !lines.is_empty() {
        send(settings, &target, &lines).await?;
        info!(bridge, "removed our flows");
    }
    Ok(())
}

/// Removes our firewall table.
pub(crate) async fn remove_table(settings: &Settings) -> Result<(), NodeError> {
    let script = format!("add table {TABLE}\ndelete table {TABLE}\n");
    let removed = run(&settings.programs.nft, &["-f", "-"], Some(&script)).await;
    removed
        .map(drop)
        .map_err(|reason| NodeError::Host { what: format!("remove firewall table {TABLE}"), reason })
}

/// The directory of Open vSwitch's sockets.
pub(crate) fn run_dir(settings: &Settings) -> PathBuf {
    let socket = settings.ovs_db.strip_prefix("unix:").map(Path::new);
    socket.and_then(Path::parent).unwrap_or(Path::new("/var/run/openvswitch")).to_owned()
}

async fn dump(settings: &Settings, target: &str) -> Result<Vec<Flow>, NodeError> {
    let args = ["-O", "OpenFlow13", "--no-stats", "--no-names", "dump-flows", target];
    let failed = |reason| NodeError::Host { what: format!("read the flows at {target}"), reason };
    let text = run(&settings.programs.ovs_ofctl, &args, None).await.map_err(failed)?;
    ofctl::parse_dump(&text).map_err(|line| failed(format!("ovs-ofctl printed {line:?}")))
}

async fn send(settings: &Settings, target: &str, lines: &[String]) -> Result<(), NodeError> {
    let args = ["-O", "OpenFlow13", "--bundle", "add-flows", target, "-"];
    let text = lines.join("\n") + "\n";
    run(&settings.programs.ovs_ofctl, &args, Some(&text))
        .await
        .map(drop)
        .map_err(|reason| NodeError::Host { what: format!("change the flows at {target}"), reason })
}

/// Runs a program to its end; the error is what it says, or why it cannot be run.
async fn run(program: &Path, args: &[&str], input: Option<&str>) -> Result<String, String> {
    run_as(program, args, input, |_| {}).await
}

/// The same; the process id is told before the program gets its input.
async fn run_as(
    program: &Path,
    args: &[&str],
    input: Option<&str>,
    tell: impl FnOnce(u32),
) -> Result<String, String> {
    let name = program.display();
    let mut command = Command::new(program);
    command.args(args).kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child =
        command.spawn().map_err(|error| format!("{name} cannot be started: {error}; is it in PATH?"))?;
    if let Some(process) = child.id() {
        tell(process);
    }
    let stdin = child.stdin.take();
    let feed = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // A program that stops reading says why when it ends.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let both = async { tokio::join!(feed, child.wait_with_output()).1 };
    let output = timeout(PATIENCE, both).await.map_err(|_| format!("{name} does not end"))?;
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} {}: {}", args.first().unwrap_or(&""), said.trim()))
}
