//! From a shim's request to the operation it asks for.

use std::time::{Instant, SystemTime};

use ::cni::{CniError, CniResult, Command, Invocation, NetConf, PodIfInfo, Request, Response, code};
use kapi::PodKey;
use tokio_util::sync::CancellationToken;

use super::{add::AddRequest, context::CniServer, failure::Failure};

/// The environment's value of a variable, as the shim sent it.
fn variable<'a>(request: &'a Request, key: &str) -> Option<&'a str> {
    request.env.iter().find(|(k, _)| k.trim() == key).map(|(_, value)| value.as_str())
}

impl CniServer {
    /// Counts a request's duration from the shim's start. False if the clock was set meanwhile, which makes the shim
    /// report it by itself.
    pub(crate) fn count(&self, request: &Request, started: SystemTime, failed: bool) -> bool {
        let Some(command) = variable(request, "CNI_COMMAND") else { return false };
        let Ok(elapsed) = started.elapsed() else { return false };
        self.observer.request(command, elapsed, failed);
        true
    }

    /// Serves one request. An error is what the shim prints.
    pub(crate) async fn handle(
        &self,
        request: &Request,
        cancel: &CancellationToken,
    ) -> Result<Response, CniError> {
        let invocation = Invocation::from_env(|key| variable(request, key))?;
        let started = Instant::now();
        let outcome = self.dispatch(&invocation, &request.config, cancel).await;
        let elapsed = started.elapsed();
        self.observer.served(invocation.command, elapsed, outcome.is_err());
        let (command, pod) = (invocation.command.as_str(), &invocation.pod);
        let milliseconds = elapsed.as_secs_f64() * 1000.0;
        match &outcome {
            Ok(_) => tracing::info!(
                command,
                namespace = pod.namespace,
                pod = pod.name,
                sandbox = invocation.container_id,
                milliseconds,
                "CNI request done"
            ),
            Err(e) => tracing::warn!(
                command,
                namespace = pod.namespace,
                pod = pod.name,
                sandbox = invocation.container_id,
                milliseconds,
                error = %e,
                "CNI request failed"
            ),
        }
        outcome
    }

    async fn dispatch(
        &self,
        invocation: &Invocation,
        config: &[u8],
        cancel: &CancellationToken,
    ) -> Result<Response, CniError> {
        let conf = NetConf::parse(config)?;
        invocation.command.check_version(conf.version()?)?;
        let key = PodKey::new(&*invocation.pod.namespace, &*invocation.pod.name);
        let sandbox = invocation.container_id.as_str();
        let ifname = invocation.ifname.as_str();
        let failed = |failure: Failure| failure.to_cni(&key, sandbox);
        match invocation.command {
            Command::Add => {
                invocation.require_pod()?;
                if !conf.is_default() {
                    return Err(failed(Failure::UserNetwork(conf.name.clone())));
                }
                let request = AddRequest::new(&invocation.pod, sandbox, &invocation.netns, ifname, &conf);
                if self.settings.unprivileged {
                    let info = self.add_unprivileged(&request, cancel).await.map_err(failed)?;
                    return Ok(Response {
                        pod_if_info: Some(info),
                        kube_auth: self.settings.kube_auth.clone(),
                        ..Response::default()
                    });
                }
                let result = self.add(&request, cancel).await.map_err(failed)?;
                Ok(Response { result: Some(result), ..Response::default() })
            }
            Command::Del if !self.settings.unprivileged => {
                self.del(key.clone(), sandbox, ifname, &conf.previous_addresses()).await.map_err(failed)?;
                // A result, though empty, tells shims that the work has been done here.
                Ok(Response { result: Some(CniResult::default()), ..Response::default() })
            }
            Command::Check if !self.settings.unprivileged => {
                self.check(&key, sandbox, &invocation.netns, ifname).await.map_err(failed)?;
                Ok(Response::default())
            }
            Command::Gc if !self.settings.unprivileged => {
                self.gc(&conf).await.map_err(failed)?;
                Ok(Response::default())
            }
            Command::Status => match self.not_ready() {
                Some(reason) => Err(CniError::new(code::NOT_AVAILABLE, "not ready to attach pods", reason)),
                None => Ok(Response::default()),
            },
            Command::Del => Ok(Response { pod_if_info: Some(PodIfInfo::nothing()), ..Response::default() }),
            // An unprivileged server touches nothing; the shim answers VERSION itself.
            Command::Check | Command::Gc | Command::Version => Ok(Response::default()),
        }
    }
}
