//! Wakes the agent when the kernel says that something it cares about changed.

use std::io;

use host::monitor::{Event, Groups, Monitor};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::mgmt_port::{MAIN_TABLE, SERVICE_TABLE};

/// Listens for ever. Must be started in the namespace of the node, before the host is read for the first time.
pub(crate) struct HostWatch {
    monitor: AsyncFd<Monitor>,
}

impl HostWatch {
    /// Opens the socket. Needs a tokio runtime.
    pub(crate) fn open() -> io::Result<HostWatch> {
        let groups = Groups { links: true, addresses: true, routes: true };
        let monitor = Monitor::open(groups).map_err(io::Error::other)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe code; the monitor owns its descriptor while it lives"
        )]
        let monitor = AsyncFd::new(monitor)?;
        Ok(HostWatch { monitor })
    }

    /// Wakes the agent on each relevant change; ends only with an error.
    pub(crate) async fn follow(mut self, wake: &Notify) -> io::Error {
        loop {
            let mut guard = match self.monitor.readable_mut().await {
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
}

/// Pods coming and going make many notifications about their veths and routes, which change nothing for us.
fn is_relevant(event: &Event) -> bool {
    match event {
        Event::Link(link) | Event::LinkGone(link) => link.kind.as_deref() != Some("veth"),
        Event::Address(_) | Event::AddressGone(_) | Event::Overrun => true,
        Event::Route(route) | Event::RouteGone(route) => {
            route.table == SERVICE_TABLE || route.table == MAIN_TABLE
        }
    }
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
        assert!(is_relevant(&Event::Overrun));
    }
}
