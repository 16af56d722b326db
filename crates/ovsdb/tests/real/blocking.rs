//! The client without a runtime.

use std::time::{Duration, Instant};

use ovsdb::{
    Datum, Filter, MonitorSpec, Mutation, Op, Options, Replica, Uuid,
    blocking::{Connection, Error},
};

use crate::server::{SCHEMA, Server, columns, port};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[tokio::test]
async fn reads_writes_and_waits() {
    let server = Server::standalone(SCHEMA).await;
    let writer = Replica::connect(Options::unix(server.socket(), "Test").monitor(MonitorSpec::all()));
    writer.ready().await;
    let socket = server.socket();
    let (asked, wait) = tokio::sync::oneshot::channel();
    let reader = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(&socket, "Test").unwrap();
        connection.transact(&[port(1, "p")], soon()).unwrap();
        let rows = connection.select("Port", Uuid::from_u128(1), &["name"], soon()).unwrap();
        assert_eq!(rows[0].str("name"), Some("p"));
        let refused = connection.transact(&[port(1, "q")], soon());
        assert!(matches!(refused, Err(Error::Rejected(r)) if r.is_duplicate_uuid()));

        let mut asked = Some(asked);
        let filter = Filter::equal("name", "p");
        connection.wait_for("Port", filter, &["external_ids"], soon(), |rows| {
            if let Some(asked) = asked.take() {
                asked.send(()).unwrap();
            }
            rows.first()?.key("external_ids", "ovn-installed").map(str::to_owned)
        })
    });
    wait.await.unwrap();
    let uuid = Uuid::from_u128(1);
    writer.transact(vec![Op::update("Port", uuid, columns([("tag", 1i64.into())]))]).await.unwrap();
    let installed = Mutation::insert("external_ids", Datum::map([("ovn-installed", "true")]));
    writer.transact(vec![Op::mutate("Port", uuid, vec![installed])]).await.unwrap();
    assert_eq!(reader.await.unwrap().unwrap(), "true");
}

#[tokio::test]
async fn every_call_has_a_deadline() {
    let server = Server::standalone(SCHEMA).await;
    let socket = server.socket();
    server.signal(nix::sys::signal::Signal::SIGSTOP);
    let outcome = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(&socket, "Test").unwrap();
        connection.select("Port", Filter::every(), &[], Instant::now() + Duration::from_millis(50))
    });
    assert!(matches!(outcome.await.unwrap(), Err(Error::TimedOut(_))));
    server.signal(nix::sys::signal::Signal::SIGCONT);
}

#[test]
fn a_missing_server_is_named() {
    let error = Connection::open(std::path::Path::new("/nonexistent/db.sock"), "Test").unwrap_err();
    assert!(error.to_string().contains("/nonexistent/db.sock"), "{error}");
}
