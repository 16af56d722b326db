//! One node: its namespaces, Open vSwitch and OVN.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::IpAddr,
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::net::UnixStream;

use crate::{
    addresses::{Families, GATEWAY, chassis, node_mac},
    datapath::Datapath,
    prefix::Prefix,
    space::{Process, Space},
    underlay::{self, nodad},
    wire::{Layout, Program},
};

/// The gateway bridge that holds the node's address.
pub const GATEWAY_BRIDGE: &str = "breth0";
/// Open vSwitch's database, as the node sees it.
pub const OVS_SOCKET: &str = "/var/run/openvswitch/db.sock";
/// The Northbound database, as the node sees it.
pub const NB_SOCKET: &str = "/var/run/ovn/ovnnb_db.sock";
/// The Southbound database, as the node sees it.
pub const SB_SOCKET: &str = "/var/run/ovn/ovnsb_db.sock";

/// How long a daemon may take to come up before the start of the cluster fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The daemons of OVS and OVN on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// ovsdb-server with Open_vSwitch.
    OvsDb,
    /// ovs-vswitchd.
    Vswitchd,
    /// ovsdb-server with OVN_Northbound.
    Nb,
    /// ovsdb-server with OVN_Southbound.
    Sb,
    /// ovn-northd.
    Northd,
    /// ovn-controller.
    Controller,
}

/// A node of a cluster. Dereferences to its [`Space`] to run things on it.
pub struct Node {
    space: Space,
    number: u8,
    families: Families,
    prefix: Prefix,
    daemons: Mutex<BTreeMap<Daemon, Process>>,
    netns: tokio::sync::Mutex<()>,
}

/// Files every node starts from, made once.
pub(crate) struct Templates {
    dir: PathBuf,
}

// === impl Templates ===

impl Templates {
    pub(crate) async fn make(prefix: &Prefix, work: &Path) -> Result<Self> {
        let dir = work.join("templates");
        tokio::fs::create_dir_all(&dir).await?;
        for daemon in [Daemon::OvsDb, Daemon::Nb, Daemon::Sb] {
            let Some((file, schema)) = daemon.database() else { continue };
            let name = Path::new(file).file_name().context("a database without a file name")?;
            let output = tokio::process::Command::new(prefix.program("ovsdb-tool"))
                .arg("create")
                .arg(dir.join(name))
                .arg(prefix.schema(schema)?)
                .output()
                .await?;
            if !output.status.success() {
                bail!("ovsdb-tool create {file}: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
        }
        Ok(Self { dir })
    }
}

// === impl Daemon ===

impl Daemon {
    /// All, in the order they start.
    pub const ALL: [Self; 6] =
        [Self::OvsDb, Self::Nb, Self::Sb, Self::Vswitchd, Self::Northd, Self::Controller];

    /// Database file and schema, for the databases.
    fn database(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::OvsDb => Some(("/etc/openvswitch/conf.db", "vswitch.ovsschema")),
            Self::Nb => Some(("/etc/ovn/ovnnb_db.db", "ovn-nb.ovsschema")),
            Self::Sb => Some(("/etc/ovn/ovnsb_db.db", "ovn-sb.ovsschema")),
            _ => None,
        }
    }

    /// Its socket, for the databases.
    pub fn socket(self) -> Option<&'static str> {
        match self {
            Self::OvsDb => Some(OVS_SOCKET),
            Self::Nb => Some(NB_SOCKET),
            Self::Sb => Some(SB_SOCKET),
            _ => None,
        }
    }

    fn command(self, prefix: &Prefix) -> Vec<String> {
        let program = |name: &str| prefix.program(name).display().to_string();
        let log = |file: &str| vec![format!("--log-file=/var/log/{file}"), "-vconsole:off".to_owned()];
        let server = |db: &str, run: &str, table: Option<&str>| {
            let mut argv = vec![
                program("ovsdb-server"),
                format!("--remote=punix:{run}.sock"),
                format!("--pidfile={run}.pid"),
                format!("--unixctl={run}.ctl"),
            ];
            argv.extend(table.map(|table| format!("--remote=db:{table},connections")));
            argv.push(db.to_owned());
            argv
        };
        let mut argv = match self {
            Self::OvsDb => vec![
                program("ovsdb-server"),
                format!("--remote=punix:{OVS_SOCKET}"),
                "--remote=db:Open_vSwitch,Open_vSwitch,manager_options".to_owned(),
                "--pidfile".to_owned(),
                "/etc/openvswitch/conf.db".to_owned(),
            ],
            Self::Nb => {
                server("/etc/ovn/ovnnb_db.db", "/var/run/ovn/ovnnb_db", Some("OVN_Northbound,NB_Global"))
            }
            Self::Sb => {
                server("/etc/ovn/ovnsb_db.db", "/var/run/ovn/ovnsb_db", Some("OVN_Southbound,SB_Global"))
            }
            Self::Vswitchd => {
                vec![program("ovs-vswitchd"), format!("unix:{OVS_SOCKET}"), "--pidfile".to_owned()]
            }
            Self::Northd => vec![
                program("ovn-northd"),
                format!("--ovnnb-db=unix:{NB_SOCKET}"),
                format!("--ovnsb-db=unix:{SB_SOCKET}"),
                "--n-threads=1".to_owned(),
                "--pidfile=/var/run/ovn/ovn-northd.pid".to_owned(),
            ],
            Self::Controller => vec![
                program("ovn-controller"),
                format!("unix:{OVS_SOCKET}"),
                "--pidfile=/var/run/ovn/ovn-controller.pid".to_owned(),
            ],
        };
        argv.extend(match self {
            Self::OvsDb => log("openvswitch/ovsdb-server.log"),
            Self::Vswitchd => log("openvswitch/ovs-vswitchd.log"),
            Self::Nb => log("ovn/ovsdb-server-nb.log"),
            Self::Sb => log("ovn/ovsdb-server-sb.log"),
            Self::Northd => log("ovn/ovn-northd.log"),
            Self::Controller => log("ovn/ovn-controller.log"),
        });
        argv
    }
}

// === impl Node ===

impl Deref for Node {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

impl Node {
    /// Makes the node and starts all its daemons; `numbers` count from 1.
    pub(crate) async fn start(
        work: &Path,
        underlay: &Space,
        number: u8,
        families: Families,
        prefix: &Prefix,
        templates: &Templates,
    ) -> Result<Self> {
        let name = format!("node{number}");
        let dir = work.join(&name);
        let space = Space::start(Layout { name, dir }).await?;
        let node = Self {
            space,
            number,
            families,
            prefix: prefix.clone(),
            daemons: Mutex::default(),
            netns: tokio::sync::Mutex::default(),
        };
        underlay::plug(underlay, &node.space, number).await?;
        node.copy_databases(templates).await?;
        let databases = async {
            futures::future::try_join(node.start_daemon(Daemon::Nb), node.start_daemon(Daemon::Sb)).await?;
            node.start_daemon(Daemon::Northd).await
        };
        let switch = async {
            node.start_daemon(Daemon::OvsDb).await?;
            node.identify().await?;
            node.start_daemon(Daemon::Vswitchd).await?;
            node.start_daemon(Daemon::Controller).await?;
            node.make_gateway_bridge().await
        };
        futures::future::try_join(databases, switch).await?;
        Ok(node)
    }

    /// 1 for node1.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Its addresses on the underlay, the primary first.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.families.on_underlay(self.number).into_iter().map(|(address, _)| address).collect()
    }

    /// Its primary address on the underlay.
    pub fn address(&self) -> IpAddr {
        self.families.primary(self.number)
    }

    /// Its OVN chassis name.
    pub fn chassis(&self) -> String {
        chassis(self.number)
    }

    /// The Northbound database's socket, reachable from outside the node.
    pub fn nb_socket(&self) -> PathBuf {
        self.space.outside(NB_SOCKET)
    }

    /// The Southbound database's socket, reachable from outside the node.
    pub fn sb_socket(&self) -> PathBuf {
        self.space.outside(SB_SOCKET)
    }

    /// Open vSwitch's database socket, reachable from outside the node.
    pub fn ovs_socket(&self) -> PathBuf {
        self.space.outside(OVS_SOCKET)
    }

    /// Runs one of OVN's or OVS's programs on the node, for example `["ovn-nbctl", "show"]`.
    pub async fn ovn<S: AsRef<str>>(&self, argv: &[S]) -> Result<String> {
        let mut argv: Vec<String> = argv.iter().map(|arg| arg.as_ref().to_owned()).collect();
        if let Some(name) = argv.first_mut() {
            *name = self.prefix.program(name).display().to_string();
        }
        self.space.exec(&argv).await
    }

    /// A running daemon, to look at or to kill.
    pub fn daemon(&self, daemon: Daemon) -> Option<Process> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner).get(&daemon).cloned()
    }

    /// Starts a daemon, or starts it again after it was killed; a database is ready to be connected to when this returns.
    pub async fn start_daemon(&self, daemon: Daemon) -> Result<Process> {
        let program = Program {
            argv: daemon.command(&self.prefix),
            log: Some(self.space.outside(format!("/var/log/{daemon:?}.out"))),
            ..Program::default()
        };
        let process = self.space.spawn(program).await?;
        if let Some(socket) = daemon.socket() {
            wait_for_socket(&self.space.outside(socket), &process).await?;
        }
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner).insert(daemon, process.clone());
        Ok(process)
    }

    /// Held while a named network namespace is made.
    pub(crate) async fn netns_lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.netns.lock().await
    }

    /// Tells ovn-controller where the Southbound database is and how to tunnel, as the node agent does in a whole cluster.
    pub async fn join_ovn(&self) -> Result<()> {
        let remote = format!("external_ids:ovn-remote=unix:{SB_SOCKET}");
        let encap = format!("external_ids:ovn-encap-ip={}", self.address());
        self.ovn(&[
            "ovs-vsctl",
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            &remote,
            &encap,
            "external_ids:ovn-encap-type=geneve",
            // Every node is a zone of its own: tunnels go to chassis of other zones.
            "external_ids:ovn-is-interconn=true",
        ])
        .await
        .map(drop)
    }

    async fn copy_databases(&self, templates: &Templates) -> Result<()> {
        for daemon in [Daemon::OvsDb, Daemon::Nb, Daemon::Sb] {
            let Some((file, _)) = daemon.database() else { continue };
            let name = Path::new(file).file_name().context("a database without a file name")?;
            tokio::fs::copy(templates.dir.join(name), self.space.outside(file)).await?;
        }
        Ok(())
    }

    /// What the machine's set-up, and not the node agent, puts into Open vSwitch's database.
    async fn identify(&self) -> Result<()> {
        let system_id = format!("external_ids:system-id={}", self.chassis());
        let hostname = format!("external_ids:hostname={}", self.space.name());
        let datapath = format!("external_ids:ovn-bridge-datapath-type={}", Datapath::chosen().kind());
        self.ovn(&[
            "ovs-vsctl",
            "--no-wait",
            "--",
            "init",
            "--",
            "set",
            "Open_vSwitch",
            ".",
            &system_id,
            &hostname,
            "external_ids:rundir=/var/run/openvswitch",
            // This must stand before ovn-controller makes br-int: machines without the kernel module have no other.
            &datapath,
        ])
        .await
        .map(drop)
    }

    async fn make_gateway_bridge(&self) -> Result<()> {
        let mac = node_mac(self.number);
        let hwaddr = format!("other_config:hwaddr=\"{mac}\"");
        let datapath = format!("datapath_type={}", Datapath::chosen().kind());
        // Without --no-wait: returns when ovs-vswitchd has made it.
        self.ovn(&[
            "ovs-vsctl",
            "--timeout=20",
            "--",
            "add-br",
            GATEWAY_BRIDGE,
            "--",
            "set",
            "Bridge",
            GATEWAY_BRIDGE,
            &datapath,
            &hwaddr,
            "--",
            "add-port",
            GATEWAY_BRIDGE,
            "eth0",
        ])
        .await?;
        let mut lines = format!("link set lo up\nlink set eth0 up\nlink set {GATEWAY_BRIDGE} up\n");
        for (address, length) in self.families.on_underlay(self.number) {
            let _ = writeln!(
                lines,
                "address add {address}/{length} dev {GATEWAY_BRIDGE}{}",
                nodad(address.is_ipv6())
            );
        }
        for (gateway, _) in self.families.on_underlay(GATEWAY) {
            let _ = writeln!(lines, "route add default via {gateway} dev {GATEWAY_BRIDGE}");
        }
        self.space.ip_batch(&lines).await?;
        if Datapath::chosen() == Datapath::Kernel {
            return Ok(());
        }
        // The userspace datapath does not fill in checksums that the kernel left to the interface.
        self.space.exec(&["ethtool", "-K", GATEWAY_BRIDGE, "tx", "off"]).await.map(drop)
    }
}

/// Waits until somebody listens on a socket.
pub(crate) async fn wait_for_socket(socket: &Path, process: &Process) -> Result<()> {
    let connect = async {
        loop {
            if UnixStream::connect(socket).await.is_ok() {
                return Ok(());
            }
            if !process.is_running() {
                bail!("{} ended: {}", process.program().argv.join(" "), process.wait().await?.how());
            }
            // A bound socket tells nobody when it is listened on; this is the backoff of the connect.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, connect)
        .await
        .unwrap_or_else(|_| bail!("nobody listens on {} after {PATIENCE:?}", socket.display()))
}
