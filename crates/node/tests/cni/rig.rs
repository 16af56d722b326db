//! A node for CNI tests: a network namespace with real ovsdb-server and ovs-vswitchd (userspace datapath), the CNI
//! server on its socket, and a stand-in for ovn-controller that installs ports.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use ::cni::{Request, http};
use devcluster::prefix::Prefix;
use host::NetNs;
use kapi::{Pod, PodKey, annotations::POD_NETWORKS};
use nix::sched::{CloneFlags, unshare};
use node::{
    board::{PodBoard, PodView},
    cni::{CniServer, CniSettings, Ports, serve},
};
use ovsdb::{Cache, Datum, MonitorSpec, Mutation, Op, Options, Replica};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Bound of every wait of a test: reaching it is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    pub(crate) dir: tempfile::TempDir,
    prefix: Prefix,
    ovsdb: Option<Child>,
    vswitchd: Option<Child>,
    /// The test's own view of the database.
    pub(crate) db: Replica,
    pub(crate) board: PodBoard,
    pub(crate) settings: CniSettings,
    daemon: Option<Daemon>,
    controller: Option<JoinHandle<()>>,
    netns: Vec<PathBuf>,
    last_since: Duration,
    tune: Box<dyn Fn(CniServer) -> CniServer>,
}

struct Daemon {
    stop: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

/// A CNI call as the runtime makes it.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) sandbox: String,
    pub(crate) netns: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) conf: Value,
}

/// What the server answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) counted: bool,
}

// === impl Rig ===

impl Rig {
    /// Moves this thread into a fresh namespace and starts everything there. `br-int` exists.
    pub(crate) async fn start() -> Rig {
        Rig::start_with(|settings| settings, |server| server).await
    }

    /// The same with other settings or parts of the server.
    pub(crate) async fn start_with(
        settings: impl Fn(CniSettings) -> CniSettings,
        tune: impl Fn(CniServer) -> CniServer + 'static,
    ) -> Rig {
        unshare(CloneFlags::CLONE_NEWNET).expect("tests with real Open vSwitch need root");
        run(Command::new("ip").args(["link", "set", "lo", "up"]));
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("db.sock");
        let options = Options::unix(&socket, "Open_vSwitch")
            .backoff(Duration::from_millis(5), Duration::from_millis(20))
            .monitor(
                MonitorSpec::none()
                    .table("Bridge", &["name", "ports"])
                    .table("Port", &["name", "interfaces", "qos", "other_config", "external_ids"])
                    .table(
                        "Interface",
                        &["name", "external_ids", "ingress_policing_rate", "ingress_policing_burst"],
                    )
                    .table("QoS", &["type", "other_config", "queues", "external_ids"])
                    .table("Queue", &["other_config"]),
            );
        let mut rig = Rig {
            prefix: Prefix::find().expect("tests with real Open vSwitch need its programs"),
            ovsdb: None,
            vswitchd: None,
            db: Replica::connect(options),
            board: PodBoard::new(),
            settings: settings(CniSettings {
                socket_dir: dir.path().join("cni"),
                ovs_socket: socket,
                mtu: 1342,
                lag: Duration::from_millis(100),
                ..CniSettings::default()
            }),
            daemon: None,
            controller: None,
            netns: Vec::new(),
            last_since: Duration::ZERO,
            tune: Box::new(tune),
            dir,
        };
        rig.board.set_problem(None);
        let schema = rig.prefix.schema("vswitch.ovsschema").unwrap();
        run(rig.program("ovsdb-tool").arg("create").arg(rig.path("conf.db")).arg(schema));
        rig.start_ovsdb(&[]);
        rig.vsctl("--no-wait init");
        rig.start_vswitchd();
        rig.vsctl("add-br br-int -- set Bridge br-int datapath_type=netdev fail_mode=secure");
        rig.start_daemon().await;
        rig
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = self.prefix.command(name);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVN_RUNDIR"] {
            command.env(variable, self.dir.path());
        }
        command
    }

    /// Starts a database server of the local Open vSwitch.
    pub(crate) fn start_ovsdb(&mut self, more: &[&str]) {
        let mut command = self.program("ovsdb-server");
        command.arg(self.path("conf.db")).arg(format!("--remote=punix:{}", self.path("db.sock").display()));
        command
            .arg(format!("--unixctl={}", self.path("ovsdb.ctl").display()))
            .arg("-vconsole:off")
            .args(more);
        self.ovsdb = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        self.vsctl("--retry --no-wait get-manager");
    }

    pub(crate) fn start_vswitchd(&mut self) {
        let mut command = self.program("ovs-vswitchd");
        command.arg(format!("unix:{}", self.path("db.sock").display()));
        command.arg(format!("--unixctl={}", self.path("vswitchd.ctl").display())).arg("-vconsole:off");
        self.vswitchd = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }

    /// Kills switch and database.
    pub(crate) fn stop_ovs(&mut self) {
        stop(&mut self.vswitchd);
        stop(&mut self.ovsdb);
    }

    /// Serves Northbound and Southbound databases as well; they begin empty.
    pub(crate) async fn start_ovn_databases(&mut self) -> Child {
        for (file, schema) in [("nb.db", "ovn-nb.ovsschema"), ("sb.db", "ovn-sb.ovsschema")] {
            let schema = self.prefix.schema(schema).unwrap();
            run(self.program("ovsdb-tool").arg("create").arg(self.path(file)).arg(schema));
        }
        let mut command = self.program("ovsdb-server");
        command.arg(self.path("nb.db")).arg(self.path("sb.db"));
        command.arg(format!("--remote=punix:{}", self.path("ovn.sock").display()));
        command.arg(format!("--unixctl={}", self.path("ovn.ctl").display())).arg("-vconsole:off");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let socket = self.path("ovn.sock");
        until("the OVN databases listen", || std::os::unix::net::UnixStream::connect(&socket).is_ok()).await;
        child
    }

    pub(crate) fn nbctl(&self, args: &str) -> String {
        self.ovnctl("ovn-nbctl", args)
    }

    pub(crate) fn sbctl(&self, args: &str) -> String {
        self.ovnctl("ovn-sbctl", args)
    }

    fn ovnctl(&self, program: &str, args: &str) -> String {
        let db = format!("--db=unix:{}", self.path("ovn.sock").display());
        run(self
            .program(program)
            .args(["--timeout=20", "--no-leader-only"])
            .arg(db)
            .args(args.split_whitespace()))
    }

    pub(crate) async fn start_daemon(&mut self) {
        let ports = Ports::connect(
            Options::unix(&self.settings.ovs_socket, "Open_vSwitch")
                .backoff(Duration::from_millis(5), Duration::from_millis(20)),
            &self.settings.bridge,
        );
        ports.ready().await;
        let server = CniServer::new(self.settings.clone(), self.board.clone(), ports).unwrap();
        let server = Arc::new((self.tune)(server));
        server.sweep_now().await;
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(server, stop.clone()));
        self.daemon = Some(Daemon { stop, task });
        let socket = self.socket();
        until("the server listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok()).await;
    }

    /// Ends the daemon as kill -9 would: nothing is undone.
    pub(crate) async fn kill_daemon(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.task.abort();
            let _ = daemon.task.await;
        }
    }

    /// Ends the daemon in order: running requests are undone.
    pub(crate) async fn stop_daemon(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop.cancel();
            daemon.task.await.unwrap().unwrap();
        }
    }

    pub(crate) async fn restart_daemon(&mut self) {
        self.stop_daemon().await;
        self.start_daemon().await;
    }

    fn socket(&self) -> PathBuf {
        self.settings.socket_dir.join(::cni::SOCKET_NAME)
    }

    pub(crate) fn vsctl(&self, args: &str) -> String {
        let db = format!("--db=unix:{}", self.path("db.sock").display());
        run(self.program("ovs-vsctl").arg("--timeout=20").arg(db).args(args.split_whitespace()))
    }

    /// Installs every port from now on, as ovn-controller does once flows are in place.
    pub(crate) fn install_ports(&mut self) {
        let db = self.db.clone();
        self.controller = Some(tokio::spawn(async move {
            loop {
                let waiting = db.wait_for(uninstalled).await;
                let ops = waiting
                    .into_iter()
                    .map(|uuid| {
                        let installed = Datum::map([("ovn-installed", "true")]);
                        Op::mutate("Interface", uuid, vec![Mutation::insert("external_ids", installed)])
                    })
                    .collect();
                if db.transact(ops).await.is_err() {
                    db.ready().await;
                }
            }
        }));
    }

    pub(crate) fn install_nothing(&mut self) {
        if let Some(task) = self.controller.take() {
            task.abort();
        }
    }

    /// A namespace bound like a runtime does.
    pub(crate) fn netns(&mut self, name: &str) -> String {
        let path = self.path(name);
        // Runtimes make a pod's sandboxes much further apart than the clock of the file system ticks.
        let ticked = |ns: &NetNs| ns.since().unwrap() > self.last_since;
        let mut ns = NetNs::bound(&path).unwrap();
        while !ticked(&ns) {
            drop(ns);
            NetNs::unbind(&path).unwrap();
            ns = NetNs::bound(&path).unwrap();
        }
        self.last_since = ns.since().unwrap();
        self.netns.push(path.clone());
        path.display().to_string()
    }

    pub(crate) fn remove_netns(&mut self, path: &str) {
        NetNs::unbind(path).unwrap();
        self.netns.retain(|p| p != Path::new(path));
    }

    /// Runs `ip` in a namespace.
    pub(crate) fn ip_in(&self, netns: &str, args: &str) -> String {
        NetNs::open(netns).unwrap().run(|| ip(args)).unwrap()
    }

    /// Puts a pod with addresses on the board.
    pub(crate) fn pod(&self, name: &str, uid: &str, ips: &str) -> PodKey {
        self.pod_with(name, uid, ips, &[])
    }

    /// The same with more annotations.
    pub(crate) fn pod_with(&self, name: &str, uid: &str, ips: &str, more: &[(&str, &str)]) -> PodKey {
        let mut pod = api_pod(name, uid);
        let list: Vec<&str> = ips.split(',').collect();
        let gateways: Vec<&str> =
            list.iter().map(|ip| if ip.contains(':') { "fd00:10:244::1" } else { "10.244.0.1" }).collect();
        let network = json!({"default": {
            "ip_addresses": list, "mac_address": "0a:58:0a:f4:00:05", "gateway_ips": gateways,
            "routes": [{"dest": "10.244.0.0/16", "nextHop": "10.244.0.1"}], "role": "primary",
        }});
        pod.metadata.annotations.insert(POD_NETWORKS.into(), network.to_string());
        for (key, value) in more {
            pod.metadata.annotations.insert((*key).into(), (*value).into());
        }
        self.board.apply(PodView::of(&pod));
        pod.pod_key()
    }

    /// Puts a pod without addresses on the board.
    pub(crate) fn bare_pod(&self, name: &str, uid: &str, reason: &str) {
        let mut view = PodView::of(&api_pod(name, uid));
        view.waiting_reason = Some(reason.to_owned()).filter(|r| !r.is_empty());
        self.board.apply(view);
    }

    pub(crate) async fn call(&self, call: &Call) -> Answer {
        tokio::time::timeout(PATIENCE, post(&self.socket(), call, None)).await.expect("an answer in time")
    }

    /// The same from a shim that says when it was started, since the epoch.
    pub(crate) async fn call_started(&self, call: &Call, started: Duration) -> Answer {
        let socket = self.socket();
        let answer = post(&socket, call, Some(started));
        tokio::time::timeout(PATIENCE, answer).await.expect("an answer in time")
    }

    /// Starts a call and gives the connection to drop, or to read the answer from.
    pub(crate) async fn begin(&self, call: &Call) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).await.unwrap();
        stream.write_all(&http::post("/", &call.body(), None)).await.unwrap();
        stream
    }

    /// A call that runs beside the test.
    pub(crate) fn spawn(&self, call: Call) -> JoinHandle<Answer> {
        let socket = self.socket();
        tokio::spawn(async move {
            tokio::time::timeout(PATIENCE, post(&socket, &call, None)).await.expect("an answer in time")
        })
    }

    /// Waits until the database shows something.
    pub(crate) async fn see<R>(&self, what: &str, look: impl FnMut(&Cache) -> Option<R>) -> R {
        match tokio::time::timeout(PATIENCE, self.db.wait_for(look)).await {
            Ok(found) => found,
            Err(_) => panic!("never seen: {what}"),
        }
    }

    /// Waits until an interface of the sandbox is in the database.
    pub(crate) async fn see_port(&self, sandbox: &str) {
        self.see("the port", |cache| count(cache, sandbox).checked_sub(1)).await;
    }

    /// Sandboxes whose interface holds the pod's iface-id.
    pub(crate) fn owners(&self, pod: &str) -> Vec<String> {
        let text = self
            .vsctl(&format!("--bare --columns=external_ids find Interface external_ids:iface-id=ns_{pod}"));
        text.split_whitespace().filter_map(|w| w.strip_prefix("sandbox=")).map(str::to_owned).collect()
    }

    /// Open vSwitch has nothing of a sandbox: no interface, no shaper.
    pub(crate) fn assert_no_rows_of(&self, sandbox: &str) {
        for table in ["Interface", "QoS", "Queue"] {
            let found =
                self.vsctl(&format!("--bare --columns=_uuid find {table} external_ids:sandbox={sandbox}"));
            assert_eq!(found, "", "{table} of {sandbox}");
        }
    }

    /// Nothing of a sandbox is left: no rows, no link.
    pub(crate) fn assert_nothing_of(&self, sandbox: &str) {
        self.assert_no_rows_of(sandbox);
        let links = ip("-o link");
        let name: String = sandbox.chars().take(15).collect();
        assert!(!links.contains(&name), "{links}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop_ovs();
        for path in &self.netns {
            let _ = NetNs::unbind(path);
        }
    }
}

// === impl Call ===

impl Call {
    pub(crate) fn new(verb: &'static str, sandbox: &str, netns: &str, pod: &str, uid: &str) -> Call {
        let conf = json!({"cniVersion": "1.1.0", "name": "ovn-kubernetes", "type": "ovn-k8s-cni-overlay"});
        let owned = str::to_owned;
        Call { verb, sandbox: owned(sandbox), netns: owned(netns), pod: owned(pod), uid: owned(uid), conf }
    }

    pub(crate) fn verb(&self, verb: &'static str) -> Call {
        Call { verb, ..self.clone() }
    }

    pub(crate) fn version(&self, version: &str) -> Call {
        let mut call = self.clone();
        call.conf["cniVersion"] = version.into();
        call
    }

    fn body(&self) -> Vec<u8> {
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME={};K8S_POD_UID={}",
            self.pod, self.uid
        );
        let env = [
            ("CNI_COMMAND", self.verb),
            ("CNI_CONTAINERID", &self.sandbox),
            ("CNI_NETNS", &self.netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", &args),
        ];
        let request = Request {
            env: env.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            config: self.conf.to_string().into_bytes(),
            ..Request::default()
        };
        serde_json::to_vec(&request).unwrap()
    }
}

// === impl Answer ===

impl Answer {
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        serde_json::from_str::<Value>(&self.text).unwrap()["Result"].clone()
    }

    #[track_caller]
    pub(crate) fn ok(&self) {
        assert_eq!(self.status, 200, "{}", self.text);
    }

    #[track_caller]
    pub(crate) fn refused(&self) -> &str {
        assert_eq!(self.status, 400, "{}", self.text);
        &self.text
    }
}

async fn post(socket: &Path, call: &Call, started: Option<Duration>) -> Answer {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(&http::post("/", &call.body(), started)).await.unwrap();
    answer(&mut stream).await
}

pub(crate) async fn answer(stream: &mut UnixStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let parsed = http::parse(&bytes, true).unwrap().unwrap();
    Answer { status: parsed.status, counted: parsed.counted, text: String::from_utf8(parsed.body).unwrap() }
}

fn uninstalled(cache: &Cache) -> Option<Vec<ovsdb::Uuid>> {
    let rows: Vec<_> = cache
        .rows("Interface")
        .filter(|row| row.key("external_ids", "iface-id").is_some())
        .filter(|row| row.key("external_ids", "ovn-installed").is_none())
        .map(|row| row.uuid())
        .collect();
    (!rows.is_empty()).then_some(rows)
}

/// Interfaces of a sandbox.
pub(crate) fn count(cache: &Cache, sandbox: &str) -> usize {
    cache.rows("Interface").filter(|row| row.key("external_ids", "sandbox") == Some(sandbox)).count()
}

pub(crate) fn api_pod(name: &str, uid: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = "ns".into();
    pod.metadata.name = name.into();
    pod.metadata.uid = uid.into();
    pod.spec.node_name = "node1".into();
    pod
}

pub(crate) fn ip(args: &str) -> String {
    run(Command::new("ip").args(args.split_whitespace()))
}

/// Waits for something no event tells of.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("did not come about: {what}");
}

fn stop(daemon: &mut Option<Child>) {
    if let Some(mut child) = daemon.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
