//! What the agent is waiting for or suffering from: the text behind `/readyz`, the log line and the tests' waits.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// What start-up, or a node that lost something, waits for. In the order in which it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Awaited {
    /// The database server.
    OpenVswitch {
        /// Where it is expected.
        endpoint: String,
    },
    /// Any word from the API server about our Node.
    ApiServer {
        /// What the watch failed with, if it did.
        reason: Option<String>,
    },
    /// Our Node object.
    NodeObject,
    /// The Node's internal address.
    NodeAddress,
    /// The subnets.
    NodeSubnets,
    /// ovs-vswitchd.
    Interface {
        /// What vswitchd says about the interface.
        reason: Option<String>,
    },
    /// ovn-controller.
    Installed {
        /// The step that is missing, once that was found out.
        reason: Option<String>,
    },
    /// ovn-controller's connection.
    OvnController {
        /// What is wrong with it.
        reason: String,
    },
    /// The gateway bridge that takes over a network card.
    Bridge {
        /// The card.
        card: String,
        /// Who has to do what.
        step: &'static str,
    },
    /// The node's way out of the cluster.
    Gateway {
        /// What is missing for it.
        problem: String,
    },
    /// The gateway's connection to the integration bridge.
    PatchPort {
        /// The gateway bridge.
        bridge: String,
    },
    /// An operation that is being retried.
    Retry {
        /// What failed.
        reason: String,
    },
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = |f: &mut fmt::Formatter<'_>, reason: &Option<String>| match reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        };
        match self {
            Awaited::OpenVswitch { endpoint } => {
                write!(f, "Open vSwitch at {endpoint}: is ovsdb-server running?")
            }
            Awaited::ApiServer { reason } => {
                f.write_str("the Kubernetes API server")?;
                because(f, reason)
            }
            Awaited::NodeObject => {
                f.write_str("the Node object: has the kubelet registered the node under this name?")
            }
            Awaited::NodeAddress => f.write_str("an InternalIP of the Node, or --encap-ip"),
            Awaited::NodeSubnets => f.write_str(
                "annotation k8s.ovn.org/node-subnets: is the cluster manager running, has it a free subnet?",
            ),
            Awaited::Interface { reason } => {
                f.write_str("interface ovn-k8s-mp0: is ovs-vswitchd running?")?;
                because(f, reason)
            }
            Awaited::Installed { reason } => {
                f.write_str("ovn-controller to install port ovn-k8s-mp0")?;
                because(f, reason)
            }
            Awaited::OvnController { reason } => write!(f, "ovn-controller to be connected: {reason}"),
            Awaited::Bridge { card, step } => {
                write!(f, "{step}, so that {card} becomes the gateway's uplink")
            }
            Awaited::Gateway { problem } => write!(f, "the node's way out of the cluster: {problem}"),
            Awaited::PatchPort { bridge } => write!(
                f,
                "ovn-controller to connect gateway bridge {bridge} to the integration bridge: are northd and the \
                 network controller running?"
            ),
            Awaited::Retry { reason } => write!(f, "a retry: {reason}"),
        }
    }
}

/// How the agent is doing; cheap to clone, all clones show the same.
#[derive(Debug, Clone)]
pub struct Status {
    inner: Arc<watch::Sender<State>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    awaited: Option<Awaited>,
    serving: bool,
}

// === impl Status ===

impl Status {
    /// An agent that has not started.
    pub fn new() -> Status {
        Status { inner: Arc::new(watch::Sender::new(State::default())) }
    }

    /// Ready when pods can be attached; otherwise what is missing.
    pub fn ready(&self) -> Result<(), String> {
        let state = self.inner.borrow();
        match (&state.awaited, state.serving) {
            (Some(awaited), _) => Err(format!("waiting for {awaited}")),
            (None, false) => Err("the node agent is starting".to_owned()),
            (None, true) => Ok(()),
        }
    }

    /// What is being waited for.
    pub fn awaited(&self) -> Option<Awaited> {
        self.inner.borrow().awaited.clone()
    }

    /// Whether the CNI server listens and the runtime has been told.
    pub fn is_serving(&self) -> bool {
        self.inner.borrow().serving
    }

    /// Waits until pods can be attached.
    pub async fn wait_ready(&self) {
        // The sender lives as long as this value.
        let _ = self.inner.subscribe().wait_for(|state| state.serving && state.awaited.is_none()).await;
    }

    /// Waits until the agent waits for something `wanted` names.
    pub async fn wait_awaiting(&self, wanted: impl Fn(&Awaited) -> bool) {
        let _ = self.inner.subscribe().wait_for(|state| state.awaited.as_ref().is_some_and(&wanted)).await;
    }

    /// Tells whether that is another thing than before.
    pub(crate) fn set_awaited(&self, awaited: Option<Awaited>) -> bool {
        self.change(|state| match (&state.awaited, &awaited) {
            // What was found out about a wait stays while it lasts.
            (Some(Awaited::Installed { .. }), Some(Awaited::Installed { reason: None })) => {}
            _ => state.awaited = awaited,
        })
    }

    /// Adds to a wait for ovn-controller what is missing.
    pub(crate) fn explain_installed(&self, why: String) {
        self.change(|state| {
            if let Some(Awaited::Installed { reason }) = &mut state.awaited {
                *reason = Some(why);
            }
        });
    }

    pub(crate) fn set_serving(&self) {
        self.change(|state| state.serving = true);
    }

    fn change(&self, edit: impl FnOnce(&mut State)) -> bool {
        self.inner.send_if_modified(|state| {
            let before = state.clone();
            edit(state);
            *state != before
        })
    }
}

impl Default for Status {
    fn default() -> Self {
        Status::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_names_what_is_missing() {
        let status = Status::new();
        assert!(status.ready().is_err());
        status.set_awaited(Some(Awaited::NodeSubnets));
        assert!(status.ready().unwrap_err().contains("k8s.ovn.org/node-subnets"));
        status.set_awaited(None);
        assert!(status.ready().unwrap_err().contains("starting"));
        status.set_serving();
        assert_eq!(status.ready(), Ok(()));
        status.set_awaited(Some(Awaited::OpenVswitch { endpoint: "unix:/x".into() }));
        assert!(
            status.ready().unwrap_err().contains("unix:/x"),
            "a node that loses Open vSwitch is not ready"
        );
    }
}
