//! Wakes the agent when the kernel says that something it cares about changed.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::firewall::TableMonitor;
use host::monitor::{Event, Groups, Monitor};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::addresses::is_usable;
use crate::gateway::nft::TABLE;
use crate::host_plan::MAIN_TABLE;
use crate::mgmt_port::SERVICE_TABLE;

/// Programs of ours that have changed the firewall just now. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writers(Arc<Mutex<BTreeSet<u32>>>);

impl Writers {
    /// Our program is about to write.
    pub(crate) fn add(&self, process: u32) {
        self.lock().insert(process);
    }

    /// Whoever has one of these process ids from now on is somebody else.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    fn has(&self, process: u32) -> bool {
        self.lock().contains(&process)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens for ever. Must be started in the namespace of the node, before the host is read for the first time.
pub(crate) struct HostWatch {
    monitor: AsyncFd<Monitor>,
    /// None on a kernel without firewall tables.
    table: Option<AsyncFd<TableMonitor>>,
}

impl HostWatch {
    /// Opens the socket. Needs a tokio runtime.
    pub(crate) fn open() -> io::Result<HostWatch> {
        let groups = Groups { links: true, addresses: true, routes: true };
        let monitor = Monitor::open(groups).map_err(io::Error::other)?;
        let monitor = watched(monitor)?;
        let (_, name) = TABLE.split_once(' ').unwrap_or_default();
        let table = TableMonitor::open(name).ok().map(watched).transpose()?;
        Ok(HostWatch { monitor, table })
    }

    /// Wakes the agent on each relevant change, and sets `touched` when it was one of the firewall that none of `writers`
    /// made; ends only with an error.
    pub(crate) async fn follow(self, wake: &Notify, touched: &AtomicBool, writers: &Writers) -> io::Error {
        tokio::select! {
            error = follow_network(self.monitor, wake) => error,
            error = follow_table(self.table, wake, touched, writers) => error,
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe code; the monitors own their descriptors while they live"
)]
fn watched<T: AsRawFd>(monitor: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(monitor)
}

async fn follow_table(
    table: Option<AsyncFd<TableMonitor>>,
    wake: &Notify,
    touched: &AtomicBool,
    writers: &Writers,
) -> io::Error {
    let Some(mut table) = table else { return std::future::pending().await };
    loop {
        let mut guard = match table.readable_mut().await {
            Ok(guard) => guard,
            Err(error) => return error,
        };
        match guard.get_inner_mut().try_read(|process| writers.has(process)) {
            Ok(None) => guard.clear_ready(),
            Ok(Some(false)) => {}
            Ok(Some(true)) => {
                touched.store(true, Ordering::Release);
                wake.notify_one();
            }
            Err(error) => return io::Error::other(error),
        }
    }
}

async fn follow_network(mut monitor: AsyncFd<Monitor>, wake: &Notify) -> io::Error {
    loop {
        let mut guard = match monitor.readable_mut().await {
            Ok(guard) => guard,
            Err(error) => return error,
        };
        match guard.get_inner_mut().try_read() {
            Ok(None) => guard.clear_ready(),
            Ok(Some(events)) => {
                if events.iter().any(is_relevant) {
                    wake.notify_one();
                }
            }
            Err(error) => return io::Error::other(error),
        }
    }
}

/// Pods coming and going make many notifications about their veths and routes, which change nothing for us.
fn is_relevant(event: &Event) -> bool {
    match event {
        Event::Link(link) | Event::LinkGone(link) => link.kind.as_deref() != Some("veth"),
        Event::Address(address) | Event::AddressGone(address) => is_usable(address.net.addr()),
        Event::Route(route) | Event::RouteGone(route) => {
            let default = route.dst.prefix_len() == 0;
            let planned = route.table == SERVICE_TABLE || route.table == MAIN_TABLE;
            planned && (default || is_usable(route.dst.addr()) || is_masquerade_host(route))
        }
        Event::Overrun => true,
    }
}

/// The masquerade range is link-local by default, but its host routes are ours.
fn is_masquerade_host(route: &host::route::Route) -> bool {
    route.dst.prefix_len() == route.dst.max_prefix_len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_and_foreign_tables_do_not_wake_the_agent() {
        let route =
            |table| host::route::Route { table, ..host::route::Route::to("10.0.0.0/8".parse().unwrap()) };
        assert!(is_relevant(&Event::Route(route(MAIN_TABLE))));
        assert!(is_relevant(&Event::RouteGone(route(SERVICE_TABLE))));
        assert!(!is_relevant(&Event::Route(route(255))));
        assert!(!is_relevant(&Event::Route(route(1009))));
        let to = |dst: &str| Event::Route(host::route::Route::to(dst.parse().unwrap()));
        assert!(
            is_relevant(&to("0.0.0.0/0")) && is_relevant(&to("::/0")) && is_relevant(&to("169.254.169.3/32"))
        );
        assert!(!is_relevant(&to("fe80::/64")), "every new veth brings one");
        assert!(is_relevant(&Event::Overrun));
    }
}
