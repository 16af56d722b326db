//! A machine of its own: a network namespace with real ovsdb-server and ovs-vswitchd (userspace datapath), a gateway
//! bridge with the node's address, and everything else below a temporary directory.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use host::monitor::{Groups, Monitor};
use nix::sched::{CloneFlags, unshare};
use node::Settings;

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ovn/schema/vswitch.ovsschema");

/// The machine. Dropping it stops its daemons; the namespace goes with the test's thread.
pub(crate) struct Machine {
    dir: tempfile::TempDir,
    vswitchd: Option<Child>,
    ovsdb: Option<Child>,
}

impl Machine {
    /// Moves this thread into a fresh namespace and starts Open vSwitch there.
    pub(crate) fn start() -> Machine {
        unshare(CloneFlags::CLONE_NEWNET).expect("tests with real Open vSwitch need root");
        let mut machine = Machine { dir: tempfile::tempdir().unwrap(), vswitchd: None, ovsdb: None };
        run(Command::new("ip").args(["link", "set", "lo", "up"]));
        machine.create_database();
        machine.start_ovsdb();
        machine.vsctl("--no-wait init");
        machine.vsctl("--no-wait set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev");
        machine.start_vswitchd();
        machine
    }

    /// The gateway bridge with the node's addresses and a default route, as on the recorded node.
    pub(crate) fn with_gateway_bridge(self) -> Machine {
        self.vsctl(
            "add-br breth0 -- set Bridge breth0 datapath_type=netdev other_config:hwaddr=02:42:ac:12:00:01 \
             fail_mode=standalone",
        );
        self.ip("link add eth0 type veth peer name outside");
        self.ip("link set eth0 up");
        self.ip("link set outside up");
        self.vsctl("add-port breth0 eth0");
        self.ip("addr add 172.18.0.1/24 dev breth0");
        self.ip("link set breth0 up");
        self.ip("route add default via 172.18.0.254");
        self
    }

    /// A plain network card with the node's addresses and routes: no bridge yet.
    pub(crate) fn with_plain_card(self) -> Machine {
        self.ip("link add eth0 address 02:42:ac:12:00:01 type veth peer name outside");
        self.ip("link set eth0 up");
        self.ip("link set outside up");
        self.ip("addr add 172.18.0.1/24 brd + dev eth0");
        self.ip("addr add 172.18.0.7/24 brd + dev eth0");
        self.ip("addr add fd00:172:18::1/64 dev eth0 nodad");
        self.ip("route add default via 172.18.0.254 metric 100 src 172.18.0.1");
        self.ip("route add 10.9.0.0/16 dev eth0 mtu 1280");
        self.ip("-6 route add default via fd00:172:18::254");
        self.ip("neigh add 172.18.0.99 lladdr 02:00:00:00:00:99 dev eth0");
        self
    }

    /// Addresses, routes and permanent neighbours of an interface, without those of single links.
    pub(crate) fn network_of(&self, interface: &str) -> Vec<String> {
        let commands = ["-o addr show", "route show", "-6 route show", "neigh show nud permanent"]
            .map(|c| format!("{c} dev {interface}"));
        let text: Vec<String> = commands.iter().map(|command| self.ip(command)).collect();
        let mut lines = Vec::new();
        for line in text.iter().flat_map(|text| text.lines()) {
            let passing = ["fe80:", "ff00:", "169.254.169.", "fd69:"];
            if passing.iter().any(|word| line.contains(word)) {
                continue;
            }
            let words = line.split_whitespace().map(|word| word.trim_end_matches('\\'));
            let words = words.skip_while(|word| word.ends_with(':') || *word == interface);
            // An interface without a carrier says so in its routes.
            let words = words.filter(|word| *word != "linkdown" && *word != interface);
            lines.push(words.collect::<Vec<_>>().join(" "));
        }
        lines.sort();
        lines
    }

    /// Settings as the recorded node's flags say, with all files below the machine's directory.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::new(
            "node1",
            vec!["10.244.0.0/16".parse().unwrap()],
            vec!["10.96.0.0/16".parse().unwrap()],
        );
        settings.ovs_db = format!("unix:{}", self.path("db.sock").display());
        settings.ovn_remote = self.remote("ovnsb_db.sock");
        settings.ovn_nb = self.remote("ovnnb_db.sock");
        settings.ovn_run_dir = None;
        settings.mtu = 1342;
        settings.ovn_controller.inactivity_probe_ms = 180_000;
        settings.gateway.interface = "breth0".into();
        settings.gateway.node_port = true;
        settings.programs.ovs_ofctl = find("ovs-ofctl");
        settings.cni_conf.dir = self.path("net.d");
        settings.cni_dir = self.path("cni");
        settings.system_id_file = self.path("system-id.conf");
        settings
    }

    /// A path below the machine's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command for a program of Open vSwitch or OVN that keeps to the machine's directory.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(find(program));
        command.env("OVN_RUNDIR", self.dir.path()).env("OVN_LOGDIR", self.dir.path());
        command
            .env("OVS_RUNDIR", self.dir.path())
            .env("OVS_LOGDIR", self.dir.path())
            .env("OVS_DBDIR", self.dir.path());
        command
    }

    fn create_database(&self) {
        run(self.command("ovsdb-tool").arg("create").arg(self.path("conf.db")).arg(SCHEMA));
    }

    /// Starts the database server and waits until it answers.
    pub(crate) fn start_ovsdb(&mut self) {
        let mut command = self.command("ovsdb-server");
        command.arg(self.path("conf.db")).arg(format!("--remote=punix:{}", self.path("db.sock").display()));
        command.arg(format!("--unixctl={}", self.path("ovsdb.ctl").display())).arg("-vconsole:off");
        self.ovsdb = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        // ovs-vsctl itself waits for the database.
        run(self
            .command("ovs-vsctl")
            .args(["--timeout=20", "--retry", "--no-wait"])
            .arg(self.db())
            .arg("get-manager"));
    }

    /// Kills the database server.
    pub(crate) fn stop_ovsdb(&mut self) {
        stop(&mut self.ovsdb);
    }

    /// Runs a program to its end and returns what it printed.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> String {
        run(self.command(program).args(args))
    }

    /// The address of a socket in the machine's directory.
    pub(crate) fn remote(&self, socket: &str) -> String {
        format!("unix:{}", self.path(socket).display())
    }

    /// Starts the switch.
    pub(crate) fn start_vswitchd(&mut self) {
        let mut command = self.command("ovs-vswitchd");
        command.arg(format!("unix:{}", self.path("db.sock").display()));
        command.arg(format!("--unixctl={}", self.path("ovs-vswitchd.0.ctl").display())).arg("-vconsole:off");
        self.vswitchd = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }

    /// Kills the switch.
    pub(crate) fn stop_vswitchd(&mut self) {
        stop(&mut self.vswitchd);
    }

    fn db(&self) -> String {
        format!("--db=unix:{}", self.path("db.sock").display())
    }

    /// Runs ovs-vsctl; arguments are separated by spaces.
    pub(crate) fn vsctl(&self, args: &str) -> String {
        run(self.command("ovs-vsctl").arg("--timeout=20").arg(self.db()).args(args.split_whitespace()))
    }

    /// Runs ip; arguments are separated by spaces.
    pub(crate) fn ip(&self, args: &str) -> String {
        run(Command::new("ip").args(args.split_whitespace()))
    }

    /// What ovn-controller does once the logical ports exist and their flows are in place: it says so in the management
    /// port's row, and connects the gateway bridge.
    pub(crate) fn install_port(&self) {
        self.vsctl("set Interface ovn-k8s-mp0 external_ids:ovn-installed=true");
        if !self.vsctl("list-br").lines().any(|bridge| bridge == "breth0") {
            return;
        }
        let (here, there) = ("patch-br-int-to-breth0_node1", "patch-breth0_node1-to-br-int");
        self.vsctl(&format!(
            "--may-exist add-port breth0 {there} -- set Interface {there} type=patch options:peer={here} -- \
             --may-exist add-port br-int {here} -- set Interface {here} type=patch options:peer={there}"
        ));
    }

    /// Wipes the database's file, as a reinstalled machine has it, keeping what the start scripts would set.
    pub(crate) fn lose_database(&mut self) {
        self.stop_ovsdb();
        std::fs::remove_file(self.path("conf.db")).unwrap();
        std::fs::remove_file(self.path("system-id.conf")).unwrap();
        self.create_database();
        self.start_ovsdb();
        self.vsctl("--no-wait init");
        self.vsctl("--no-wait set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev");
    }

    /// Replaces the database by one whose schema lacks a column of Interface, as an old Open vSwitch has it.
    pub(crate) fn downgrade_schema(&mut self, column: &str) {
        let text = std::fs::read_to_string(SCHEMA).unwrap();
        let mut schema: serde_json::Value = serde_json::from_str(&text).unwrap();
        schema["tables"]["Interface"]["columns"].as_object_mut().unwrap().remove(column).unwrap();
        let old = self.path("old.ovsschema");
        std::fs::write(&old, schema.to_string()).unwrap();
        std::fs::remove_file(self.path("conf.db")).unwrap();
        run(self.command("ovsdb-tool").arg("create").arg(self.path("conf.db")).arg(old));
        self.start_ovsdb();
    }

    /// The flows of the gateway bridge.
    pub(crate) fn flows(&self) -> String {
        let target = format!("unix:{}", self.path("breth0.mgmt").display());
        self.run("ovs-ofctl", &["-O", "OpenFlow13", "--no-stats", "--no-names", "dump-flows", &target])
    }

    /// The same while the switch may be away.
    pub(crate) fn try_flows(&self) -> Option<String> {
        let target = format!("unix:{}", self.path("breth0.mgmt").display());
        let output =
            self.command("ovs-ofctl").args(["-O", "OpenFlow13", "dump-flows", &target]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Runs nft.
    pub(crate) fn nft(&self, script: &str) {
        run(Command::new("nft").arg(script));
    }

    /// The kernel's numbers of the table and all its objects: made anew, they have others.
    pub(crate) fn firewall_handles(&self) -> String {
        let shown = run(Command::new("nft").args(["--handle", "list", "table", "inet", "ovn-kubernetes"]));
        shown.lines().filter_map(|line| line.split_once("# handle")).map(|(_, number)| number).collect()
    }

    /// Our firewall table; empty if there is none.
    pub(crate) fn firewall(&self) -> String {
        let output = Command::new("nft").args(["list", "table", "inet", "ovn-kubernetes"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The offloads of an interface, as ethtool shows them.
    pub(crate) fn offloads(&self, interface: &str) -> String {
        run(Command::new("ethtool").args(["-k", interface]))
    }

    /// Listens to every change of links, addresses and routes from now on.
    pub(crate) fn monitor_host(&self) -> HostMonitor {
        HostMonitor(Monitor::open(Groups { links: true, addresses: true, routes: true }).unwrap())
    }

    /// The number of transactions that changed the database, by its journal.
    pub(crate) fn transactions(&self) -> usize {
        let journal = std::fs::read_to_string(self.path("conf.db")).unwrap();
        journal.lines().filter(|line| line.starts_with("OVSDB JSON")).count()
    }
}

/// A record of what the kernel reported.
pub(crate) struct HostMonitor(Monitor);

impl HostMonitor {
    /// All that was reported, without what the kernel itself does about link-local addresses.
    pub(crate) fn stop(mut self) -> String {
        let mut seen = String::new();
        while let Some(events) = self.0.try_read().unwrap() {
            for event in events {
                let text = format!("{event:?}");
                if !text.contains("fe80:") && !text.contains("ff00:") {
                    seen.push_str(&text);
                }
            }
        }
        seen
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        stop(&mut self.vswitchd);
        stop(&mut self.ovsdb);
    }
}

/// A program of Open vSwitch: from the folder `OVN_BIN_DIR` names, else from the search path.
fn find(name: &str) -> PathBuf {
    let folders = std::env::var_os("OVN_BIN_DIR").or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&folders)
        .chain(system)
        .map(|folder| folder.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("there is no {name} in OVN_BIN_DIR or PATH: run `cargo xtask setup` first"))
}

fn stop(daemon: &mut Option<Child>) {
    if let Some(mut child) = daemon.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Waits until `done`, looking again after each kernel notification or at least every 20 ms; fails after 20 s.
pub(crate) async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("did not come about: {what}");
}
