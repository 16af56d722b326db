//! What the runtime asks: the `CNI_*` variables, checked.

use std::collections::BTreeMap;
use std::fmt;

use crate::{
    error::{CniError, code},
    version::Version,
};

/// Interface name if the runtime gives none.
pub const DEFAULT_IFNAME: &str = "eth0";

/// A CNI command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// Attach a container.
    Add,
    /// Detach a container.
    Del,
    /// Is the attachment as it should be?
    Check,
    /// Remove attachments not listed.
    Gc,
    /// Can ADD be served?
    Status,
    /// Which versions are spoken?
    Version,
}

/// The pod a request is about, from `CNI_ARGS`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRef {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// `K8S_POD_NAME`.
    pub name: String,
    /// `K8S_POD_UID`; older runtimes do not give it.
    pub uid: Option<String>,
}

/// A checked request of the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The command.
    pub command: Command,
    /// `CNI_CONTAINERID`: the sandbox. Empty for GC and STATUS.
    pub container_id: String,
    /// `CNI_NETNS`; may be empty for DEL.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// The pod. Empty names for commands that are about no pod.
    pub pod: PodRef,
}

// === impl Command ===

impl Command {
    /// As in `CNI_COMMAND`.
    pub fn as_str(self) -> &'static str {
        match self {
            Command::Add => "ADD",
            Command::Del => "DEL",
            Command::Check => "CHECK",
            Command::Gc => "GC",
            Command::Status => "STATUS",
            Command::Version => "VERSION",
        }
    }

    /// Reads `CNI_COMMAND`.
    pub fn parse(text: &str) -> Result<Command, CniError> {
        [Command::Add, Command::Del, Command::Check, Command::Gc, Command::Status, Command::Version]
            .into_iter()
            .find(|c| c.as_str() == text)
            .ok_or_else(|| CniError::new(code::INVALID_ENV, format!("unknown CNI_COMMAND: {text}"), ""))
    }

    /// Refuses a command that the configuration's version does not have.
    pub fn check_version(self, version: Version) -> Result<(), CniError> {
        let since = match self {
            Command::Check => Version::V040,
            Command::Gc | Command::Status => Version::V110,
            Command::Add | Command::Del | Command::Version => return Ok(()),
        };
        if version >= since {
            return Ok(());
        }
        Err(CniError::new(
            code::INCOMPATIBLE_VERSION,
            format!("config version does not allow {self}"),
            format!("the configuration says {}, {self} needs {}", version.as_str(), since.as_str()),
        ))
    }

    fn is_about_a_container(self) -> bool {
        matches!(self, Command::Add | Command::Del | Command::Check)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Invocation ===

impl Invocation {
    /// Checks the variables. `get` returns a variable's value.
    pub fn from_env<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<Invocation, CniError> {
        let value = |key: &str| get(key).unwrap_or_default().trim().to_owned();
        let command = value("CNI_COMMAND");
        if command.is_empty() {
            return Err(missing("CNI_COMMAND"));
        }
        let command = Command::parse(&command)?;
        let mut invocation = Invocation {
            command,
            container_id: value("CNI_CONTAINERID"),
            netns: value("CNI_NETNS"),
            ifname: value("CNI_IFNAME"),
            pod: PodRef::parse(&value("CNI_ARGS")),
        };
        if invocation.ifname.is_empty() {
            invocation.ifname = DEFAULT_IFNAME.to_owned();
        }
        if !command.is_about_a_container() {
            return Ok(invocation);
        }
        if invocation.container_id.is_empty() {
            return Err(missing("CNI_CONTAINERID"));
        }
        check_container_id(&invocation.container_id)?;
        check_ifname(&invocation.ifname)?;
        if command != Command::Del && invocation.netns.is_empty() {
            return Err(missing("CNI_NETNS"));
        }
        Ok(invocation)
    }

    /// Refuses a request that does not say which pod it is about.
    pub fn require_pod(&self) -> Result<(), CniError> {
        for (key, text) in [("K8S_POD_NAMESPACE", &self.pod.namespace), ("K8S_POD_NAME", &self.pod.name)] {
            if text.is_empty() {
                return Err(CniError::new(code::INVALID_ENV, format!("missing {key} in CNI_ARGS"), ""));
            }
        }
        Ok(())
    }
}

impl PodRef {
    /// Reads `CNI_ARGS` (`KEY=value;KEY=value`); unknown keys are ignored.
    pub fn parse(args: &str) -> PodRef {
        let map: BTreeMap<&str, &str> = args.split(';').filter_map(|pair| pair.split_once('=')).collect();
        let get = |key: &str| map.get(key).map(|v| v.trim().to_owned()).unwrap_or_default();
        PodRef {
            namespace: get("K8S_POD_NAMESPACE"),
            name: get("K8S_POD_NAME"),
            uid: Some(get("K8S_POD_UID")).filter(|u| !u.is_empty()),
        }
    }
}

fn missing(key: &str) -> CniError {
    CniError::new(code::INVALID_ENV, format!("required env variables [{key}] missing"), "")
}

fn check_container_id(id: &str) -> Result<(), CniError> {
    let ok = id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    if ok {
        return Ok(());
    }
    Err(CniError::new(
        code::INVALID_ENV,
        format!("CNI_CONTAINERID {id:?} has characters it must not have"),
        "",
    ))
}

fn check_ifname(name: &str) -> Result<(), CniError> {
    let bad = name.len() > 15
        || name == "."
        || name == ".."
        || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    if bad {
        return Err(CniError::new(
            code::INVALID_ENV,
            format!("CNI_IFNAME {name:?} is not an interface name"),
            "at most 15 characters, no slash, colon or space",
        ));
    }
    Ok(())
}
