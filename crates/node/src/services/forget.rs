//! Connections of UDP and SCTP go on to an endpoint that is gone, or past a service that is gone, as long as the client
//! keeps sending: the kernel and the switch have to forget them.
//!
//! OVN learns of a change in its own time. What clients open anew on the old way until then is forgotten in further
//! rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::conntrack::{Connection, Conntrack};
use kapi::Protocol;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::host_service::HostService;
use super::wants::{Context, frontends, lingers};
use crate::unixctl;

/// When after a change its connections are looked for.
const ROUNDS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(8)];

/// Connections that lead nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stale {
    /// IP protocol number.
    protocol: u8,
    /// Where clients sent to.
    frontends: BTreeSet<SocketAddr>,
    /// Who answered; none means anybody.
    backends: Option<BTreeSet<SocketAddr>>,
}

fn number(protocol: Protocol) -> Option<u8> {
    match protocol {
        Protocol::Tcp => Some(6),
        Protocol::Udp => Some(17),
        Protocol::Sctp => Some(132),
        Protocol::Other => None,
    }
}

/// What leads nowhere once `old` has become `new`. Of a service that is gone, connections of every protocol do.
pub(crate) fn stale(context: &Context, old: &HostService, new: Option<&HostService>) -> Vec<Stale> {
    let mut all = Vec::new();
    let now = new.map(|new| table(context, new)).unwrap_or_default();
    for ((protocol, frontend), backends) in table(context, old) {
        let Some(number) = number(protocol) else { continue };
        let frontends: BTreeSet<SocketAddr> = [frontend].into();
        match now.get(&(protocol, frontend)) {
            None if new.is_none() || lingers(protocol) => {
                all.push(Stale { protocol: number, frontends, backends: None });
            }
            None => {}
            Some(now) => {
                let gone: BTreeSet<SocketAddr> = backends.difference(now).copied().collect();
                if !gone.is_empty() {
                    all.push(Stale { protocol: number, frontends, backends: Some(gone) });
                }
            }
        }
    }
    merge(all)
}

type Table = BTreeMap<(Protocol, SocketAddr), BTreeSet<SocketAddr>>;

fn table(context: &Context, service: &HostService) -> Table {
    let mut table = Table::new();
    for (port, endpoints) in service.service.ports.iter().zip(&service.ports) {
        for frontend in frontends(context, service, port) {
            let backends = endpoints.all.iter().filter(|one| one.is_ipv4() == frontend.is_ipv4());
            table.entry((port.protocol, frontend)).or_default().extend(backends.copied());
        }
    }
    table
}

/// Addresses of the same fate together.
fn merge(all: Vec<Stale>) -> Vec<Stale> {
    let mut merged: Vec<Stale> = Vec::new();
    for one in all {
        match merged.iter_mut().find(|known| known.protocol == one.protocol && known.backends == one.backends)
        {
            Some(known) => known.frontends.extend(one.frontends),
            None => merged.push(one),
        }
    }
    merged
}

impl Stale {
    fn covers(&self, connection: &Connection) -> bool {
        connection.orig.protocol == self.protocol
            && self.frontends.contains(&connection.orig.dst)
            && self.backends.as_ref().is_none_or(|backends| backends.contains(&connection.reply.src))
    }

    /// In the words of the switch: what the client sent, and what the endpoint answered.
    fn in_words(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for frontend in &self.frontends {
            let to = words(self.protocol, *frontend, "dst");
            match &self.backends {
                None => all.push((to, String::new())),
                Some(backends) => {
                    let same = backends.iter().filter(|one| one.is_ipv4() == frontend.is_ipv4());
                    all.extend(same.map(|backend| (to.clone(), words(self.protocol, *backend, "src"))));
                }
            }
        }
        all
    }
}

fn words(protocol: u8, address: SocketAddr, side: &str) -> String {
    let family = if address.is_ipv4() { "nw" } else { "ipv6" };
    let (ip, port) = (address.ip(), address.port());
    format!("ct_{family}_{side}={ip},ct_tp_{side}={port},ct_nw_proto={protocol}")
}

/// Hands what is to be forgotten to a task of its own; it ends with this.
#[derive(Debug)]
pub(crate) struct Forgetter(mpsc::UnboundedSender<Vec<Stale>>);

impl Forgetter {
    /// Starts the task. `run_dir` holds the control socket of a switch that tracks connections itself.
    pub(crate) fn start(run_dir: PathBuf) -> Forgetter {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(run(receiver, run_dir));
        Forgetter(sender)
    }

    /// Has connections forgotten.
    pub(crate) fn forget(&self, stale: Vec<Stale>) {
        if !stale.is_empty() {
            // The task ends only with us.
            let _ = self.0.send(stale);
        }
    }
}

async fn run(mut orders: mpsc::UnboundedReceiver<Vec<Stale>>, run_dir: PathBuf) {
    // By the time of the next round.
    let mut waiting: Vec<(Instant, usize, Vec<Stale>)> = Vec::new();
    loop {
        let next = waiting.iter().map(|(at, ..)| *at).min();
        let pause = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            order = orders.recv() => match order {
                Some(stale) => waiting.push((Instant::now(), 0, stale)),
                None => return,
            },
            () = pause => {
                let now = Instant::now();
                let (due, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(at, ..)| *at <= now);
                waiting = later;
                let stale: Vec<Stale> = due.iter().flat_map(|(.., stale)| stale.clone()).collect();
                in_kernel(stale.clone()).await;
                in_switch(&run_dir, &stale).await;
                for (_, round, stale) in due {
                    if let (Some(this), Some(next)) = (ROUNDS.get(round), ROUNDS.get(round + 1)) {
                        waiting.push((now + (*next - *this), round + 1, stale));
                    }
                }
            }
        }
    }
}

async fn in_kernel(stale: Vec<Stale>) {
    let forget = move || -> host::Result<usize> {
        let conntrack = Conntrack::open()?;
        let found = conntrack.matching(|connection| stale.iter().any(|one| one.covers(connection)))?;
        for connection in &found {
            conntrack.forget(connection)?;
        }
        Ok(found.len())
    };
    match tokio::task::spawn_blocking(forget).await {
        Ok(Ok(0)) => {}
        Ok(Ok(count)) => debug!(count, "connections to endpoints that are gone forgotten"),
        Ok(Err(error)) => warn!(%error, "connections to endpoints that are gone may linger"),
        Err(error) => warn!(%error, "connections to endpoints that are gone may linger"),
    }
}

/// A switch in userspace tracks connections itself; one in the kernel has been served already.
async fn in_switch(run_dir: &Path, stale: &[Stale]) {
    for socket in unixctl::sockets(run_dir, "ovs-vswitchd.") {
        for (asked, answered) in stale.iter().flat_map(Stale::in_words) {
            let mut args = vec![DATAPATH, &asked];
            args.extend(Some(answered.as_str()).filter(|text| !text.is_empty()));
            if let Err(error) = unixctl::call(&socket, "dpctl/flush-conntrack", &args).await {
                // There is none: the switch works in the kernel, or was just killed.
                debug!(%error, socket = %socket.display(), "the switch was not told");
                break;
            }
        }
    }
}

/// The switch's own datapath.
const DATAPATH: &str = "netdev@ovs-netdev";
