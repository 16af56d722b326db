//! The agent with its CNI server: what the binary starts.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::cni::KubeAuth;
use kube_io::Kube;
use ovsdb::{Endpoint, Options};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::agent::{Boards, Shared, run_with};
use crate::cni::diagnose::OvnDiagnosis;
use crate::cni::{self, CniServer, CniSettings, Observer, Ports};
use crate::error::NodeError;
use crate::ovs::{self, INTEGRATION_BRIDGE};
use crate::settings::Settings;
use crate::status::Status;

/// How long requests may take to undo what they did when the agent stops.
const FAREWELL: Duration = Duration::from_secs(10);

/// How long the question why a port is not installed may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the process may add to the CNI server.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Receives durations of requests and their stages.
    pub observer: Option<Arc<dyn Observer>>,
    /// Credentials handed to an unprivileged shim.
    pub kube_auth: Option<KubeAuth>,
}

/// Runs the node agent until `cancel` fires or it cannot go on. Nothing is taken away when it ends: pods keep their
/// network, and the next start finds everything as it is.
///
/// `boards` hold what others in the process tell. `status` says at any time what the agent waits for.
pub async fn run(
    settings: Settings,
    kube: Kube,
    boards: Boards,
    hooks: Hooks,
    status: Status,
    cancel: CancellationToken,
) -> Result<(), NodeError> {
    let (requests, stop) = (TaskTracker::new(), CancellationToken::new());
    let serve = |shared: Shared| {
        let (requests, stop) = (requests.clone(), stop.clone());
        async move {
            let server = Arc::new(server(&shared, hooks)?);
            let mut serving = Box::pin(cni::serve(server.clone(), stop));
            // It listens before it first waits, so one look tells whether it does.
            if let Poll::Ready(outcome) = futures::poll!(&mut serving) {
                return Err(NodeError::CniServer(match outcome {
                    Ok(()) => "it ended at once".to_owned(),
                    Err(error) => error.to_string(),
                }));
            }
            let task = requests.spawn(serving);
            // The configuration is written next, and whoever reads it asks for STATUS at once.
            server.connected().await;
            Ok(async move {
                match task.await {
                    Ok(Ok(())) => NodeError::CniServer("it ended".to_owned()),
                    Ok(Err(error)) => NodeError::CniServer(error.to_string()),
                    Err(error) => NodeError::CniServer(error.to_string()),
                }
            })
        }
    };
    let outcome = run_with(settings, kube, boards, status, cancel, serve).await;
    stop.cancel();
    requests.close();
    if tokio::time::timeout(FAREWELL, requests.wait()).await.is_err() {
        warn!("CNI requests did not end within {FAREWELL:?}; leaving them");
    }
    outcome
}

fn server(shared: &Shared, hooks: Hooks) -> Result<CniServer, NodeError> {
    let settings = &shared.settings;
    let failed = |reason: String| NodeError::CniServer(reason);
    let endpoint: Endpoint =
        settings.ovs_db.parse().map_err(|e| failed(format!("not an OVSDB address: {e}")))?;
    let defaults = CniSettings::default();
    let cni_settings = CniSettings {
        socket_dir: settings.cni_dir.clone(),
        ovs_socket: match &endpoint {
            Endpoint::Unix(path) => path.clone(),
            _ => defaults.ovs_socket.clone(),
        },
        bridge: INTEGRATION_BRIDGE.to_owned(),
        mtu: settings.mtu,
        routable_mtu: settings.routable_mtu,
        add_timeout: settings.cni_add_timeout,
        unprivileged: settings.unprivileged,
        kube_auth: hooks.kube_auth,
        ..defaults
    };
    let ports = Ports::connect(Options::new([endpoint], "Open_vSwitch"), INTEGRATION_BRIDGE);
    let mut server = CniServer::new(cni_settings, shared.board.clone(), ports)
        .map_err(|error| failed(error.to_string()))?;
    if let Some(observer) = hooks.observer {
        server = server.observer(observer);
    }
    let chassis = shared.ovs.read(|cache| ovs::system_id(cache).map(str::to_owned));
    if let Some(diagnosis) = chassis.and_then(|chassis| diagnosis(settings, &chassis)) {
        server = server.diagnose(Arc::new(diagnosis));
    }
    Ok(server)
}

/// Finds out what keeps OVN from installing a port.
pub(crate) fn diagnosis(settings: &Settings, chassis: &str) -> Option<OvnDiagnosis> {
    let options = |address: &str, database: &str| {
        address.parse::<Endpoint>().ok().map(|endpoint| Options::new([endpoint], database))
    };
    Some(OvnDiagnosis {
        northbound: options(&settings.ovn_nb, "OVN_Northbound")?,
        southbound: options(&settings.ovn_remote, "OVN_Southbound")?,
        chassis: chassis.to_owned(),
        patience: PATIENCE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_can_be_spawned() {
        fn spawnable<T: Send>(_: impl FnOnce(Settings, Kube, Status, CancellationToken) -> T) {}
        spawnable(|settings, kube, status, cancel| {
            run(settings, kube, Boards::default(), Hooks::default(), status, cancel)
        });
    }
}
