//! The life of the daemon: configuration, log, servers, the roles, signals, the end.

use crate::{build, observe, output, pidfile::PidFile, run};
use anyhow::{Context, anyhow};
use config::{Config, ConfigError, Source, Warning};
use std::{future::Future, process::ExitCode, time::Duration};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code for a command line or configuration that cannot be used.
pub(crate) const USAGE: u8 = 2;
/// Exit code for a failure while running.
const FAILURE: u8 = 1;
/// Time the roles get to clean up; the kubelet's own patience is 30 s.
const GRACE: Duration = Duration::from_secs(20);

/// Reads the configuration of this process' surroundings.
pub(crate) fn load(args: &[String]) -> Result<(Config, Vec<Warning>), ConfigError> {
    config::load(&Source {
        args,
        env: &|name| std::env::var(name).ok(),
        read_file: &|path| std::fs::read(path),
    })
}

/// Runs the daemon to its end.
pub(crate) fn start(args: &[String]) -> ExitCode {
    let (config, warnings) = match load(args) {
        Ok(loaded) => loaded,
        Err(error) => return output::fail(USAGE, &error.to_string()),
    };
    let roles = &config.roles;
    if [&roles.cluster_manager, &roles.ovnkube_controller, &roles.node, &roles.cleanup_node]
        .iter()
        .all(|r| r.is_none())
    {
        return output::fail(
            USAGE,
            "no role is given; name at least one of --init-cluster-manager, --init-ovnkube-controller, --init-node, --cleanup-node",
        );
    }
    let telemetry = match observe::telemetry(&config) {
        Ok(telemetry) => telemetry,
        Err(error) => return output::fail(FAILURE, &error.to_string()),
    };
    log_panics();
    tracing::info!(
        version = build::INFO.version,
        revision = build::INFO.revision,
        cluster_manager = roles.cluster_manager.as_deref(),
        controller = roles.ovnkube_controller.as_deref(),
        node = roles.node.as_deref(),
        cleanup = roles.cleanup_node.as_deref(),
        "ovnkube starts"
    );
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let logs_to_file = telemetry.log.file().is_some();
    match supervise(config, telemetry) {
        Ok(()) => {
            tracing::info!("ovnkube ends");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("ovnkube ends: {error:#}");
            if logs_to_file {
                // Else the container's own log would show nothing.
                output::fail(FAILURE, &format!("{error:#}"));
            }
            ExitCode::from(FAILURE)
        }
    }
}

fn supervise(config: Config, telemetry: telemetry::Telemetry) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    // Signals first: one that comes early must not leave the pid file behind.
    let (mut term, mut int) = {
        let _context = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let mut next_signal = async || {
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = int.recv() => "SIGINT",
        }
    };
    let _pidfile = config.process.pidfile.as_deref().map(PidFile::write).transpose()?;
    // The servers end after the roles, so that an orderly end can be watched.
    let _admin = observe::admin(&config, &telemetry)?;
    let stop = CancellationToken::new();
    let health = telemetry.health.clone();
    let next_signal = async || {
        let name = next_signal().await;
        // The end is near: load balancers send nothing new from now on.
        health.set_terminating(true);
        name
    };
    let roles = run::run(config, telemetry, stop.clone());
    let result = runtime.block_on(until_stopped(roles, &stop, next_signal, GRACE));
    // Blocking tasks that hang must not hold up the end.
    runtime.shutdown_background();
    result
}

/// Drives the roles; the first signal asks them to stop, a second one or the end of their time stops them.
async fn until_stopped(
    roles: impl Future<Output = anyhow::Result<()>>,
    stop: &CancellationToken,
    mut next_signal: impl AsyncFnMut() -> &'static str,
    grace: Duration,
) -> anyhow::Result<()> {
    let mut roles = std::pin::pin!(roles);
    let name = tokio::select! {
        result = &mut roles => return result,
        name = next_signal() => name,
    };
    tracing::info!(signal = name, "stopping");
    stop.cancel();
    tokio::select! {
        result = &mut roles => result,
        name = next_signal() => Err(anyhow!("{name} came again before everything was cleaned up")),
        () = tokio::time::sleep(grace) => Err(anyhow!("not everything was cleaned up within {grace:?} after {name}")),
    }
}

/// A panic goes to the log too, where operators look first.
fn log_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string);
        let message = info.payload_as_str().unwrap_or("no message");
        tracing::error!(place, "panic: {message}");
        print(info);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    async fn signals(count: usize) -> impl AsyncFnMut() -> &'static str {
        let mut left = count;
        async move || {
            if left == 0 {
                std::future::pending::<()>().await;
            }
            left -= 1;
            "SIGTERM"
        }
    }

    #[tokio::test]
    async fn roles_end_by_themselves_or_are_asked_to() {
        let stop = CancellationToken::new();
        let failed = until_stopped(async { Err(anyhow!("no API")) }, &stop, signals(0).await, GRACE).await;
        assert_eq!(failed.unwrap_err().to_string(), "no API");
        assert!(!stop.is_cancelled());

        let waits = async {
            stop.cancelled().await;
            Ok(())
        };
        assert!(until_stopped(waits, &stop, signals(1).await, GRACE).await.is_ok());
    }

    #[tokio::test]
    async fn roles_that_do_not_stop_are_left() {
        let stop = CancellationToken::new();
        let hangs = std::future::pending::<anyhow::Result<()>>;
        let twice = until_stopped(hangs(), &stop, signals(2).await, GRACE).await;
        assert!(twice.unwrap_err().to_string().starts_with("SIGTERM came again"));
        let late = until_stopped(hangs(), &stop, signals(1).await, SHORT).await;
        assert_eq!(late.unwrap_err().to_string(), "not everything was cleaned up within 20ms after SIGTERM");
    }
}
