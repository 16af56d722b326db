//! Servers that go away, come back, come back older, or fall silent.

use std::time::Duration;

use nix::sys::signal::Signal;
use ovsdb::{Cache, Client, MonitorSpec, Notice, Notices, Op, Options, TxnError, Uuid, connect};
use tokio::time::timeout;

use crate::server::{SCHEMA, Server, columns, eventually, port};

/// A client, its notices and the cache they make.
struct Follower {
    client: Client,
    notices: Notices,
    cache: Cache,
}

impl Follower {
    async fn connect(server: &Server, adjust: impl FnOnce(Options) -> Options) -> Follower {
        let options = Options::unix(server.socket(), "Test")
            .monitor(MonitorSpec::all())
            .backoff(Duration::from_millis(5), Duration::from_millis(50));
        let (client, notices) = connect(adjust(options));
        let cache = Cache::new(std::sync::Arc::new(ovsdb::Schema::empty("Test")));
        let mut follower = Follower { client, notices, cache };
        assert_eq!(follower.up().await, "reset");
        follower
    }

    async fn next(&mut self) -> Notice {
        timeout(Duration::from_secs(30), self.notices.recv()).await.expect("no notice").expect("stopped")
    }

    /// Waits for a connection, and for what the server tells first: everything or a difference.
    async fn up(&mut self) -> &'static str {
        while !matches!(self.next().await, Notice::Up { .. }) {}
        match self.next().await {
            Notice::Reset(update) => {
                self.cache.reset(&update);
                "reset"
            }
            Notice::Update(update) => {
                self.cache.apply(&update);
                "update"
            }
            other => panic!("{other:?}"),
        }
    }

    /// Applies what has arrived.
    fn catch_up(&mut self) {
        while let Some(notice) = self.notices.try_recv() {
            match notice {
                Notice::Reset(update) => drop(self.cache.reset(&update)),
                Notice::Update(update) => drop(self.cache.apply(&update)),
                Notice::Up { .. } | Notice::Down { .. } => {}
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.cache.rows("Port").filter_map(|r| r.str("name").map(str::to_owned)).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn a_server_that_remembers_tells_only_what_changed() {
    let mut server = Server::cluster_of_one(SCHEMA).await;
    let mut follower = Follower::connect(&server, |o| o).await;
    follower.client.transact((1..50).map(|n| port(n, &format!("p{n}"))).collect()).await.unwrap();
    follower.catch_up();
    assert_eq!(follower.names().len(), 49);

    server.kill();
    assert!(matches!(follower.next().await, Notice::Down { .. }));
    assert!(matches!(follower.client.transact(vec![port(99, "x")]).await, Err(TxnError::NotConnected)));
    server.start().await;
    assert_eq!(follower.up().await, "update");
    assert_eq!(follower.names().len(), 49);
    follower.client.transact(vec![port(100, "more"), Op::delete("Port", Uuid::from_u128(1))]).await.unwrap();
    follower.catch_up();
    assert_eq!(follower.names().len(), 49);
    assert_eq!(follower.cache.inconsistencies(), 0);
}

#[tokio::test]
async fn changes_made_while_away_arrive_after_resuming() {
    let server = Server::cluster_of_one(SCHEMA).await;
    // The relay between client and server is cut, so that the server goes on meanwhile.
    let wire = Wire::before(&server).await;
    let mut follower =
        Follower::connect(&server, |o| Options { endpoints: vec![wire.endpoint()], ..o }).await;
    // The server keeps no more history than content, so there has to be some.
    follower.client.transact((10..300).map(|n| port(n, &format!("p{n}"))).collect()).await.unwrap();
    follower.client.transact(vec![port(1, "kept"), port(2, "gone")]).await.unwrap();
    follower.catch_up();
    let writer = Follower::connect(&server, |o| o).await;
    wire.cut();
    assert!(matches!(follower.next().await, Notice::Down { .. }));
    writer
        .client
        .transact(vec![
            Op::update("Port", Uuid::from_u128(1), columns([("tag", 7i64.into())])),
            Op::delete("Port", Uuid::from_u128(2)),
            port(3, "new"),
        ])
        .await
        .unwrap();
    wire.join();
    assert_eq!(follower.up().await, "update");
    assert_eq!(follower.names().len(), 292);
    assert_eq!(follower.names()[..2], ["kept", "new"]);
    assert_eq!(follower.cache.row("Port", &Uuid::from_u128(1)).unwrap().int("tag"), Some(7));
}

#[tokio::test]
async fn an_older_copy_of_the_database_replaces_everything() {
    let mut server = Server::cluster_of_one(SCHEMA).await;
    let mut follower = Follower::connect(&server, |o| o).await;
    follower.client.transact(vec![port(1, "old")]).await.unwrap();
    server.kill();
    let copy = server.dir.path().join("copy");
    std::fs::copy(server.database(), &copy).unwrap();
    server.start().await;
    assert_eq!(follower.up().await, "update");
    follower.client.transact(vec![port(2, "lost"), Op::delete("Port", Uuid::from_u128(1))]).await.unwrap();
    follower.catch_up();
    assert_eq!(follower.names(), ["lost"]);

    server.kill();
    std::fs::rename(&copy, server.database()).unwrap();
    server.start().await;
    assert_eq!(follower.up().await, "reset");
    assert_eq!(follower.names(), ["old"]);
}

#[tokio::test]
async fn a_standalone_server_has_no_memory_and_is_loaded_anew() {
    let mut server = Server::standalone(SCHEMA).await;
    let mut follower = Follower::connect(&server, |o| o).await;
    follower.client.transact(vec![port(1, "a")]).await.unwrap();
    server.kill();
    server.start().await;
    assert_eq!(follower.up().await, "reset");
    assert_eq!(follower.names(), ["a"]);
}

/// When the server is killed.
#[derive(Clone, Copy)]
enum Kill {
    /// When it has been sent this many bytes of the transaction.
    Sent(u64),
    /// When it has written the transaction to its file, before the answer has come.
    Written,
}

#[tokio::test]
async fn killed_in_mid_transaction_a_retry_gives_exactly_one_row() {
    const ROWS: usize = 2999;
    let ops = || (1..=ROWS as u128).map(|n| port(n, &format!("p{n}"))).collect::<Vec<_>>();
    let moments =
        [Kill::Sent(1), Kill::Sent(50_000), Kill::Sent(150_000), Kill::Sent(250_000), Kill::Written];
    for kill in moments {
        let mut server = Server::standalone(SCHEMA).await;
        let wire = Wire::before(&server).await;
        let mut follower =
            Follower::connect(&server, |o| Options { endpoints: vec![wire.endpoint()], ..o }).await;
        wire.hold_answers();
        let (sent, written) = (wire.sent(), server.written());
        let client = follower.client.clone();
        let attempt = tokio::spawn(async move { client.transact(ops()).await });
        match kill {
            Kill::Sent(bytes) => wire.wait_sent(sent + bytes).await,
            Kill::Written => {
                // The file grows in one step, by far more than the first record of a connection.
                eventually("the file to grow", || (server.written() > written + 100_000).then_some(())).await;
            }
        }
        server.kill();
        wire.cut();
        assert!(matches!(attempt.await.unwrap(), Err(TxnError::Unknown)));
        wire.join();
        server.start().await;
        follower.up().await;
        let found = follower.names().len();
        assert!(found == 0 || found == ROWS, "a transaction is made in whole: {found}");
        match (kill, follower.client.transact(ops()).await) {
            (Kill::Sent(_), Ok(_)) => assert_eq!(found, 0),
            (_, Err(TxnError::Rejected(rejection))) => {
                assert!(rejection.is_duplicate_uuid(), "{rejection}");
                assert_eq!(found, ROWS);
            }
            (_, other) => panic!("{other:?}"),
        }
        follower.catch_up();
        assert_eq!(follower.names().len(), ROWS);
    }
}

#[tokio::test]
async fn an_answer_lost_on_the_way_is_unknown_and_the_retry_recognised() {
    let server = Server::standalone(SCHEMA).await;
    let wire = Wire::before(&server).await;
    let mut follower =
        Follower::connect(&server, |o| Options { endpoints: vec![wire.endpoint()], ..o }).await;
    wire.hold_answers();
    let client = follower.client.clone();
    let attempt = tokio::spawn(async move { client.transact(vec![port(1, "once")]).await });
    let other = Follower::connect(&server, |o| o).await;
    // It has been made: another client can see it, ours cannot.
    let seen = other.client.transact(vec![Op::Wait {
        table: "Port".into(),
        filter: Uuid::from_u128(1).into(),
        columns: vec!["name".into()],
        equal: true,
        rows: vec![columns([("name", "once".into())])],
        timeout_ms: 20_000,
    }]);
    seen.await.unwrap();
    wire.cut();
    assert!(matches!(attempt.await.unwrap(), Err(TxnError::Unknown)));
    wire.join();
    follower.up().await;
    assert_eq!(follower.names(), ["once"]);
    let again = follower.client.transact(vec![port(1, "once")]).await;
    assert!(again.unwrap_err().rejection().unwrap().is_duplicate_uuid());
}

#[tokio::test]
async fn a_stalled_server_is_given_up_by_the_probe() {
    let server = Server::standalone(SCHEMA).await;
    let mut follower = Follower::connect(&server, |o| o.probe_interval(Duration::from_millis(500))).await;
    server.signal(Signal::SIGSTOP);
    let client = follower.client.clone();
    let attempt = tokio::spawn(async move { client.transact(vec![port(1, "a")]).await });
    match follower.next().await {
        Notice::Down { reason } => assert!(reason.contains("silent"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(attempt.await.unwrap(), Err(TxnError::Unknown)));
    server.signal(Signal::SIGCONT);
    follower.up().await;
    let retry = follower.client.transact(vec![port(1, "a")]).await;
    assert!(retry.as_ref().err().is_none_or(|e| e.rejection().is_some_and(|r| r.is_duplicate_uuid())));
    follower.catch_up();
    assert_eq!(follower.names(), ["a"]);
}

#[tokio::test]
async fn without_probe_a_request_still_has_its_deadline() {
    let server = Server::standalone(SCHEMA).await;
    let mut follower = Follower::connect(&server, |o| Options {
        rpc_timeout: Duration::from_millis(200),
        probe_interval: Duration::ZERO,
        ..o
    })
    .await;
    server.signal(Signal::SIGSTOP);
    assert!(matches!(follower.client.transact(vec![port(1, "a")]).await, Err(TxnError::Unknown)));
    server.signal(Signal::SIGCONT);
    follower.up().await;
}

#[tokio::test]
async fn loading_anew_on_request() {
    let server = Server::standalone(SCHEMA).await;
    let mut follower = Follower::connect(&server, |o| o).await;
    follower.client.reload().await;
    assert_eq!(follower.up().await, "reset");
}

#[tokio::test]
async fn a_slow_receiver_gets_joined_updates() {
    let server = Server::standalone(SCHEMA).await;
    let mut follower = Follower::connect(&server, |o| o).await;
    for n in 1..300 {
        follower.client.transact(vec![port(n, &format!("p{n}"))]).await.unwrap();
    }
    let Some(Notice::Update(update)) = follower.notices.try_recv() else { panic!("no update") };
    assert_eq!(update.len(), 299);
    assert!(follower.notices.try_recv().is_none());
}

#[tokio::test]
async fn the_driver_ends_with_its_clients() {
    let server = Server::standalone(SCHEMA).await;
    let sessions = || {
        let text = server.control(&["memory/show"]);
        text.split_whitespace().find_map(|w| w.strip_prefix("sessions:")).map_or(0, |n| n.parse().unwrap())
    };
    let Follower { client, notices, .. } = Follower::connect(&server, |o| o).await;
    eventually("the session", || (sessions() == 1).then_some(())).await;
    drop(notices);
    client.transact(vec![port(1, "a")]).await.unwrap();
    drop(client);
    eventually("the end of the session", || (sessions() == 0).then_some(())).await;
}

/// A relay between clients and a server that can be cut.
struct Wire {
    dir: tempfile::TempDir,
    state: tokio::sync::watch::Sender<State>,
    /// How many bytes have passed towards the server.
    sent: tokio::sync::watch::Sender<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Open,
    /// Requests pass, answers do not.
    Held,
    Cut,
}

impl Wire {
    async fn before(server: &Server) -> Wire {
        let dir = tempfile::TempDir::new().unwrap();
        let listener = tokio::net::UnixListener::bind(dir.path().join("wire")).unwrap();
        let (state, states) = tokio::sync::watch::channel(State::Open);
        let (sent, _) = tokio::sync::watch::channel(0);
        let (target, counter) = (server.socket(), sent.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *states.borrow() == State::Cut {
                    continue;
                }
                if let Ok(server) = tokio::net::UnixStream::connect(&target).await {
                    tokio::spawn(relay(client, server, states.clone(), counter.clone()));
                }
            }
        });
        Wire { dir, state, sent }
    }

    fn endpoint(&self) -> ovsdb::Endpoint {
        ovsdb::Endpoint::Unix(self.dir.path().join("wire"))
    }

    fn sent(&self) -> u64 {
        *self.sent.borrow()
    }

    async fn wait_sent(&self, bytes: u64) {
        let passed = self.sent.subscribe().wait_for(|sent| *sent >= bytes).await.map(|_| ());
        passed.unwrap();
    }

    fn hold_answers(&self) {
        self.state.send_replace(State::Held);
    }

    fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    fn join(&self) {
        self.state.send_replace(State::Open);
    }
}

async fn relay(
    client: tokio::net::UnixStream,
    server: tokio::net::UnixStream,
    mut states: tokio::sync::watch::Receiver<State>,
    sent: tokio::sync::watch::Sender<u64>,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut answering = states.clone();
    let requests = async move {
        let mut buffer = vec![0; 4096];
        loop {
            let count = tokio::io::AsyncReadExt::read(&mut from_client, &mut buffer).await?;
            if count == 0 {
                return Ok::<(), std::io::Error>(());
            }
            tokio::io::AsyncWriteExt::write_all(&mut to_server, &buffer[..count]).await?;
            sent.send_modify(|sent| *sent += count as u64);
        }
    };
    let answers = async move {
        let mut buffer = vec![0; 4096];
        loop {
            let count = tokio::io::AsyncReadExt::read(&mut from_server, &mut buffer).await?;
            if answering.wait_for(|s| *s != State::Held).await.is_err() || count == 0 {
                return Ok::<(), std::io::Error>(());
            }
            tokio::io::AsyncWriteExt::write_all(&mut to_client, &buffer[..count]).await?;
        }
    };
    tokio::select! {
        biased;
        _ = states.wait_for(|s| *s == State::Cut) => {}
        _ = requests => {}
        _ = answers => {}
    }
}
