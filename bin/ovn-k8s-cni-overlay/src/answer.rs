//! What the server's answer asks for, and what goes to standard output.

use cni::{CniError, Command, Invocation, Response, Version};

use crate::plumb;

/// Does what is left to do and gives the text for the runtime, if the command has any.
pub(crate) fn to(
    invocation: &Invocation,
    version: Version,
    response: Response,
) -> Result<Option<String>, CniError> {
    match (invocation.command, response.result, response.pod_if_info) {
        (Command::Add, Some(result), _) => Ok(Some(result.to_version(version).to_string())),
        // Without a result the server is unprivileged and the work is ours.
        (Command::Add, None, Some(info)) => {
            Ok(Some(plumb::add(invocation, &info)?.to_version(version).to_string()))
        }
        (Command::Add, None, None) => Err(CniError::internal("the CNI server answered ADD without a result")),
        (Command::Del, None, Some(_)) => plumb::del(invocation).map(|()| None),
        // A server that does not serve CHECK, GC or STATUS answers them with nothing: success.
        _ => Ok(None),
    }
}
