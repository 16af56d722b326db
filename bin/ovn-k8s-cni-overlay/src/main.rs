//! The CNI plugin the container runtime calls: hands the request to the CNI server and prints its answer.
//!
//! No runtime, no log framework: it lives for milliseconds, once or twice for every pod. Only where the server may
//! not touch namespaces and Open vSwitch (unprivileged mode) does it plumb itself, with the server's own code.

mod answer;
mod log;
mod plumb;
mod relay;
mod request;
mod switch;

use std::{env, io::Read, process::ExitCode};

use cni::{CniError, Command, Invocation, NetConf, PLUGIN_VERSION, code, version_reply};
use serde_json::Value;

fn main() -> ExitCode {
    let mut relayed = relay::Run::start();
    if env::var_os("CNI_COMMAND").is_none() {
        println!(
            "ovn-k8s-cni-overlay {PLUGIN_VERSION}, a CNI plugin; a container runtime calls it with CNI_COMMAND set"
        );
        return ExitCode::SUCCESS;
    }
    let mut config = Vec::new();
    let read = std::io::stdin().read_to_end(&mut config);
    // The version is needed even for the error about everything else.
    let version = cni_version(&config);
    let outcome = match read {
        Ok(_) => run(&config, &version, &mut relayed),
        Err(e) => Err(CniError::new(code::IO, "standard input could not be read", e.to_string())),
    };
    let failed = outcome.is_err();
    match outcome {
        Ok(Some(text)) => println!("{text}"),
        Ok(None) => {}
        Err(error) => {
            println!("{}", error.print(if version.is_empty() { "0.1.0" } else { &version }));
            log::failure(&config, &error);
        }
    }
    let command = env::var("CNI_COMMAND").unwrap_or_default();
    if command != "VERSION" {
        relayed.end(&command, failed);
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Serves the request; the text goes to standard output.
fn run(config: &[u8], version: &str, relayed: &mut relay::Run) -> Result<Option<String>, CniError> {
    let vars: Vec<(String, String)> = request::environment();
    let get = |key: &str| vars.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str());
    let invocation = Invocation::from_env(get)?;
    if invocation.command == Command::Version {
        return Ok(Some(version_reply(version)));
    }
    let conf = NetConf::parse(config)?;
    let version = conf.version()?;
    invocation.command.check_version(version)?;
    let request = request::build(&invocation, &conf, vars, config)?;
    answer::to(&invocation, version, relay::send(invocation.command, &request, relayed)?)
}

/// `cniVersion` of whatever came, or nothing.
fn cni_version(config: &[u8]) -> String {
    let value: Value = serde_json::from_slice(config).unwrap_or_default();
    value.get("cniVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}
