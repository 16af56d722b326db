//! One request and its answer on the server's socket.

use std::{
    env,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cni::{
    CniError, Command, METRICS_PATH, MetricsPost, REQUEST_PATH, Request, Response, SOCKET_DIR, SOCKET_NAME,
    code, http,
};

/// The server bounds its own work by 2 minutes and then explains itself.
const PATIENCE: Duration = Duration::from_secs(140);
/// A duration report must not hold up the runtime.
const METRICS_PATIENCE: Duration = Duration::from_millis(500);
/// Another place for the socket, for tests.
const SOCKET_VARIABLE: &str = "OVN_CNI_SERVER_SOCKET";

/// The run of the shim whose duration is measured.
pub(crate) struct Run {
    /// Since the epoch.
    started: Duration,
    since: Instant,
    /// The server knows how long it took.
    counted: bool,
}

// === impl Run ===

impl Run {
    pub(crate) fn start() -> Run {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Run { started, since: Instant::now(), counted: false }
    }

    /// Tells the server how long it took, unless it has counted that; nobody minds if that fails.
    pub(crate) fn end(&self, command: &str, failed: bool) {
        if self.counted {
            return;
        }
        let elapsed = self.since.elapsed().as_secs_f64();
        let post = MetricsPost { command: command.to_owned(), elapsed, failed };
        if let Ok(body) = serde_json::to_vec(&post) {
            let _ = exchange(&http::post(METRICS_PATH, &body, None), METRICS_PATIENCE);
        }
    }
}

/// Sends the request. Failures of the server come back as the error to print.
pub(crate) fn send(command: Command, request: &Request, run: &mut Run) -> Result<Response, CniError> {
    let body = serde_json::to_vec(request).map_err(|e| CniError::internal(e.to_string()))?;
    let post = http::post(REQUEST_PATH, &body, Some(run.started));
    let answer = exchange(&post, PATIENCE).map_err(|e| unreachable(command, &e))?;
    run.counted = answer.counted;
    if answer.status != 200 {
        return Err(CniError::from_body(answer.status, &answer.body));
    }
    if answer.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Response::default());
    }
    serde_json::from_slice(&answer.body)
        .map_err(|e| CniError::new(code::DECODE, "the CNI server's answer is not valid", e.to_string()))
}

fn unreachable(command: Command, error: &io::Error) -> CniError {
    let code = if command == Command::Status { code::NOT_AVAILABLE } else { code::TRY_AGAIN };
    CniError::new(
        code,
        format!("the CNI server of ovnkube-node does not answer on {}", socket().display()),
        error.to_string(),
    )
}

fn exchange(post: &[u8], patience: Duration) -> io::Result<http::Answer> {
    let deadline = Instant::now() + patience;
    let mut stream = UnixStream::connect(socket())?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(post)?;
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {patience:?}")));
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut chunk) {
            Ok(count) => count,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
            Err(e) => return Err(e),
        };
        received.extend_from_slice(&chunk[..count]);
        if let Some(answer) = http::parse(&received, count == 0).map_err(io::Error::other)? {
            return Ok(answer);
        }
    }
}

fn socket() -> PathBuf {
    match env::var_os(SOCKET_VARIABLE) {
        Some(path) => path.into(),
        None => PathBuf::from(SOCKET_DIR).join(SOCKET_NAME),
    }
}
