//! What goes to standard output for the server's answer.

use cni::{CniError, Command, Invocation, Response, Version};

/// The text for the runtime, if the command has any.
pub(crate) fn to(
    invocation: &Invocation,
    version: Version,
    response: Response,
) -> Result<Option<String>, CniError> {
    // A server that does not serve CHECK, GC or STATUS answers them with nothing: success.
    if invocation.command != Command::Add {
        return Ok(None);
    }
    match response.result {
        Some(result) => Ok(Some(result.to_version(version).to_string())),
        None => Err(CniError::internal("the CNI server answered ADD without a result")),
    }
}
