//! The request to the server: our whole environment, standard input, and device information.

use std::{env, fs};

use cni::{CniError, Command, Invocation, NetConf, Request, code};

/// Our environment as text; variables that are not text are of no use to the server.
pub(crate) fn environment() -> Vec<(String, String)> {
    env::vars_os()
        .filter_map(|(key, value)| {
            Some((key.into_string().ok()?.trim().to_owned(), value.into_string().ok()?))
        })
        .collect()
}

/// Builds the request.
pub(crate) fn build(
    invocation: &Invocation,
    conf: &NetConf,
    vars: Vec<(String, String)>,
    config: &[u8],
) -> Result<Request, CniError> {
    let mut request =
        Request { env: vars.into_iter().collect(), config: config.to_vec(), ..Request::default() };
    let file = &conf.runtime_config.device_info_file;
    if invocation.command == Command::Add && !conf.device_id.is_empty() && !file.is_empty() {
        let unusable = |code, why: String| {
            CniError::new(code, format!("device information file {file} cannot be used"), why)
        };
        let text = fs::read(file).map_err(|e| unusable(code::IO, e.to_string()))?;
        request.device_info =
            serde_json::from_slice(&text).map_err(|e| unusable(code::DECODE, e.to_string()))?;
    }
    Ok(request)
}
