//! Real ovsdb-servers for tests: each on a socket of its own in a temporary directory, killed by process id.

use std::{
    ffi::OsStr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ovsdb::{Datum, Name, Op, Uuid};
use tempfile::TempDir;

/// A small database: what OVN's schemas have, in few tables.
pub(crate) const SCHEMA: &str = r#"{"name":"Test","version":"1.2.3","tables":{
  "Switch":{"isRoot":true,"indexes":[["name"]],"columns":{
    "name":{"type":"string"},
    "ports":{"type":{"key":{"type":"uuid","refTable":"Port"},"min":0,"max":"unlimited"}},
    "other_config":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}},
  "Port":{"isRoot":true,"indexes":[["name"]],"columns":{
    "name":{"type":"string","mutable":false},
    "addresses":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "tag":{"type":{"key":{"type":"integer","minInteger":1,"maxInteger":4095},"min":0,"max":1}},
    "up":{"type":{"key":"boolean","min":0,"max":1}},
    "weight":{"type":"real"},
    "kind":{"type":{"key":{"type":"string","enum":["set",["a","b"]]},"min":0,"max":1}},
    "external_ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}"#;

/// A server process and its directory.
pub(crate) struct Server {
    pub(crate) dir: TempDir,
    name: String,
    args: Vec<String>,
    child: Option<Child>,
}

/// A program of OVS: from the folder `OVN_BIN_DIR` names, else from the search path.
pub(crate) fn program(name: &str) -> PathBuf {
    let folders = std::env::var_os("OVN_BIN_DIR")
        .into_iter()
        .chain(std::env::var_os("PATH"))
        .flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("there is no {name} in OVN_BIN_DIR or PATH: run `cargo xtask setup` first"))
}

/// Runs a program to its end and returns what it printed.
pub(crate) fn run(name: &str, args: &[&dyn AsRef<OsStr>]) -> String {
    let output = Command::new(program(name)).args(args.iter().map(|a| a.as_ref())).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Looks again and again until it finds; fails after a long time.
pub(crate) async fn eventually<R>(what: &str, mut look: impl FnMut() -> Option<R>) -> R {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// === impl Server ===

impl Server {
    /// A standalone database of this schema.
    pub(crate) async fn standalone(schema: &str) -> Server {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("schema"), schema).unwrap();
        run("ovsdb-tool", &[&"create", &dir.path().join("db"), &dir.path().join("schema")]);
        Server::launch(dir, "s", Vec::new()).await
    }

    /// A cluster of one member: unlike a standalone database it remembers its last transactions.
    pub(crate) async fn cluster_of_one(schema: &str) -> Server {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("schema"), schema).unwrap();
        let raft = format!("unix:{}", dir.path().join("raft").display());
        run("ovsdb-tool", &[&"create-cluster", &dir.path().join("db"), &dir.path().join("schema"), &raft]);
        Server::launch(dir, "s", Vec::new()).await
    }

    /// Starts a server on the database `db` in this directory, with more arguments.
    pub(crate) async fn launch(dir: TempDir, name: &str, args: Vec<String>) -> Server {
        let mut server = Server { dir, name: name.to_owned(), args, child: None };
        server.start().await;
        server
    }

    /// Starts the process, and waits until it listens.
    pub(crate) async fn start(&mut self) {
        self.spawn();
        let socket = self.socket();
        eventually("the server to listen", || std::os::unix::net::UnixStream::connect(&socket).ok()).await;
    }

    /// Starts the process.
    pub(crate) fn spawn(&mut self) {
        let path = |name: &str| self.dir.path().join(format!("{}.{name}", self.name));
        let child = Command::new(program("ovsdb-server"))
            .arg(self.dir.path().join("db"))
            .arg(format!("--remote=punix:{}", path("sock").display()))
            .arg(format!("--unixctl={}", path("ctl").display()))
            .arg(format!("--log-file={}", path("log").display()))
            .args(["--no-chdir", "-vconsole:off"])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join(format!("{}.sock", self.name))
    }

    /// Its database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// How long the database file is.
    pub(crate) fn written(&self) -> u64 {
        std::fs::metadata(self.database()).unwrap().len()
    }

    /// Ends the process at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = self.child.as_ref().unwrap().id();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
    }

    /// A command for the running server.
    pub(crate) fn control(&self, command: &[&str]) -> String {
        let ctl = self.dir.path().join(format!("{}.ctl", self.name));
        let mut args: Vec<&dyn AsRef<OsStr>> = vec![&"-t", &ctl];
        args.extend(command.iter().map(|word| word as &dyn AsRef<OsStr>));
        run("ovs-appctl", &args)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Columns of a row.
pub(crate) fn columns<const N: usize>(columns: [(&'static str, Datum); N]) -> Vec<(Name, Datum)> {
    columns.into_iter().map(|(name, value)| (Name::Borrowed(name), value)).collect()
}

/// The insert of a port of this name.
pub(crate) fn port(uuid: u128, name: &str) -> Op {
    Op::insert("Port", Uuid::from_u128(uuid), columns([("name", name.into())]))
}
