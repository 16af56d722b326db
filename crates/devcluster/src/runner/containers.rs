//! A pod's containers: programs of the machine's own file system, in the pod's network.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::{
    api::core::v1::{Container, EnvVar, Pod},
    jiff::Timestamp,
};

use crate::{
    node::Node,
    sandbox::Sandbox,
    space::Process,
    wire::{Exit, Program},
};

/// A container and its present process.
pub(super) struct Running {
    pub(super) container: Container,
    pub(super) restarts: i32,
    pub(super) state: State,
    pub(super) last: Option<State>,
}

/// What `containerStatuses` tells.
#[derive(Clone)]
pub(super) enum State {
    Waiting { reason: &'static str, message: Option<String> },
    Running { since: Timestamp, process: Process },
    Ended { since: Timestamp, until: Timestamp, exit: Exit },
}

/// Where and with what a pod's containers run.
pub(super) struct Place<'a> {
    pub(super) node: &'a Node,
    pub(super) sandbox: Option<&'a Sandbox>,
    pub(super) pod: &'a Pod,
    pub(super) addresses: &'a [String],
}

// === impl Running ===

impl Running {
    pub(super) fn new(container: &Container) -> Self {
        Self {
            container: container.clone(),
            restarts: 0,
            state: State::Waiting { reason: "ContainerCreating", message: None },
            last: None,
        }
    }

    pub(super) fn process(&self) -> Option<&Process> {
        match &self.state {
            State::Running { process, .. } => Some(process),
            _ => None,
        }
    }
}

// === impl Place ===

impl Place<'_> {
    /// Starts the container's program.
    pub(super) async fn start(&self, container: &Container) -> Result<State> {
        let env =
            container.env.iter().flatten().filter_map(|variable| self.variable(variable)).collect::<Vec<_>>();
        let mut argv: Vec<String> = container.command.clone().unwrap_or_default();
        argv.extend(container.args.clone().unwrap_or_default());
        if argv.is_empty() {
            // There are no images here that could say what to run.
            argv = vec!["sleep".to_owned(), "infinity".to_owned()];
        }
        for word in &mut argv {
            for (name, value) in &env {
                *word = word.replace(&format!("$({name})"), value);
            }
        }
        let meta = &self.pod.metadata;
        let log = format!(
            "/var/log/{}_{}_{}.log",
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
            container.name
        );
        let mut program = Program {
            argv,
            env,
            clear_env: true,
            dir: container.working_dir.as_ref().map(Into::into),
            log: Some(self.node.outside(log)),
            ..Program::default()
        };
        program.env.push(("HOSTNAME".to_owned(), meta.name.clone().unwrap_or_default()));
        let since = Timestamp::now();
        let process = match self.sandbox {
            Some(sandbox) => sandbox.spawn(program).await?,
            None => self.node.spawn(program).await?,
        };
        Ok(State::Running { since, process })
    }

    fn variable(&self, variable: &EnvVar) -> Option<(String, String)> {
        if let Some(value) = &variable.value {
            return Some((variable.name.clone(), value.clone()));
        }
        let field = variable.value_from.as_ref()?.field_ref.as_ref()?.field_path.as_str();
        let meta = &self.pod.metadata;
        let value = match field {
            "metadata.name" => meta.name.clone()?,
            "metadata.namespace" => meta.namespace.clone()?,
            "metadata.uid" => meta.uid.clone()?,
            "spec.nodeName" => self.node.name().to_owned(),
            "status.podIP" => self.addresses.first()?.clone(),
            "status.podIPs" => self.addresses.join(","),
            "status.hostIP" => self.node.address().to_string(),
            _ => return None,
        };
        Some((variable.name.clone(), value))
    }
}

/// Whether a container that ended so runs again.
pub(super) fn runs_again(policy: Option<&str>, exit: &Exit) -> bool {
    match policy {
        Some("Never") => false,
        Some("OnFailure") => !exit.success(),
        _ => true,
    }
}

/// How long to wait before restart number `restarts`, counted from 1.
pub(super) fn restart_delay(restarts: i32) -> Duration {
    let doublings = u32::try_from(restarts.saturating_sub(1)).unwrap_or(0).min(6);
    Duration::from_millis(500).saturating_mul(1 << doublings).min(Duration::from_secs(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_policies() {
        let exit = |code| Exit { code: Some(code), ..Exit::default() };
        assert!(runs_again(None, &exit(0)) && runs_again(Some("Always"), &exit(1)));
        assert!(runs_again(Some("OnFailure"), &exit(1)) && !runs_again(Some("OnFailure"), &exit(0)));
        assert!(!runs_again(Some("Never"), &exit(1)));
        assert!(restart_delay(1) < restart_delay(2));
        assert_eq!(restart_delay(i32::MAX), Duration::from_secs(20));
    }
}
