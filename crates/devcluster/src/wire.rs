//! What a node's first process and the program that built the cluster say to each other.
//!
//! One JSON value a line: [`Request`] on the first process's standard input, [`Reply`] on its standard output. The end
//! of its input tells the first process that the builder is gone; it then exits, and the kernel ends everything
//! in its PID namespace and frees the namespaces.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A line to the first process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the sender; replies carry it.
    pub id: u64,
    /// What to do.
    pub call: Call,
}

/// What the first process can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Call {
    /// Start a program; replies `Started`, later `Exited`.
    Spawn(Program),
    /// Send a signal to a process group started by `Spawn`.
    Signal {
        /// The group's process id, as `Started` told it.
        pid: i32,
        /// The signal's number.
        signal: i32,
    },
}

/// A program to start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Program {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables added to the environment.
    pub env: Vec<(String, String)>,
    /// Whether to start from an empty environment (but for PATH).
    pub clear_env: bool,
    /// Working directory.
    pub dir: Option<PathBuf>,
    /// Bytes for its standard input; none is `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// File to append its output to; without it the output is captured and comes with `Exited`.
    pub log: Option<PathBuf>,
}

/// A line from the first process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// The request's id; 0 for the first `Ready`.
    pub id: u64,
    /// What happened.
    pub event: Event,
}

/// What the first process tells.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    /// Mounts are made; calls are served.
    Ready,
    /// A program runs.
    Started {
        /// Its process id inside the node's PID namespace.
        pid: i32,
    },
    /// A program ended.
    Exited(Exit),
    /// A signal was sent.
    Done,
    /// The call failed.
    Failed {
        /// Cause, in words.
        error: String,
    },
}

/// How a program ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; absent when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Captured standard output, lossy UTF-8.
    pub stdout: String,
    /// Captured standard error, lossy UTF-8.
    pub stderr: String,
    /// From start to end, in microseconds, measured beside the process.
    pub micros: u64,
}

/// Directories that every node has for itself.
pub const PRIVATE: [&str; 8] = [
    "/run",
    "/var/log",
    "/etc/openvswitch",
    "/etc/ovn",
    "/etc/cni/net.d",
    "/var/lib/ovn",
    "/var/lib/openvswitch",
    "/opt/cni/bin",
];

/// How the first process of a node lays out the node's files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Layout {
    /// Host name.
    pub name: String,
    /// Directory of the node outside; it holds the private directories under `root`.
    pub dir: PathBuf,
}

// === impl Layout ===

impl Layout {
    /// Where a file in one of the [`PRIVATE`] directories is for those outside the node.
    pub fn outside(&self, path: &Path) -> PathBuf {
        let path = path
            .strip_prefix("/var/run")
            .map_or_else(|_| path.to_path_buf(), |rest| Path::new("/run").join(rest));
        self.dir.join("root").join(path.strip_prefix("/").unwrap_or(&path))
    }
}

// === impl Exit ===

impl Exit {
    /// Whether the program ended by itself with code 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// `exit code 1` or `signal 9`.
    pub fn how(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown end".to_owned(),
        }
    }
}
