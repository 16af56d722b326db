//! Loading, changing and finding rows on a real server.

use std::time::Duration;

use ovsdb::{
    Atom, Datum, Filter, IndexSpec, MonitorSpec, Mutation, Notice, Op, Options, Replica, TxnError, Uuid,
    connect, diff,
};

use crate::server::{SCHEMA, Server, columns, port};

async fn replica(server: &Server) -> Replica {
    let options = Options::unix(server.socket(), "Test")
        .monitor(MonitorSpec::all())
        .index(IndexSpec::map_key("Port", "external_ids", "iface-id"))
        .index(IndexSpec::elements("Switch", "ports"));
    let replica = Replica::connect(options);
    tokio::time::timeout(Duration::from_secs(30), replica.ready()).await.unwrap();
    replica
}

#[tokio::test]
async fn every_kind_of_column_round_trips() {
    let server = Server::standalone(SCHEMA).await;
    let replica = replica(&server).await;
    let uuid = Uuid::from_u128(7);
    let row = columns([
        ("name", "p \"quoted\" \u{fc}".into()),
        ("addresses", Datum::set(["b", "a"])),
        ("tag", 12i64.into()),
        ("up", true.into()),
        ("weight", 1.5.into()),
        ("kind", "b".into()),
        ("external_ids", Datum::map([("iface-id", "ns_pod"), ("k", "")])),
    ]);
    let results = replica.transact(vec![Op::insert("Port", uuid, row.clone())]).await.unwrap();
    assert_eq!(results[0].uuid, Some(uuid));
    replica.read(|cache| {
        let stored = cache.row("Port", &uuid).unwrap();
        for (name, value) in &row {
            assert_eq!(stored.get(name), Some(value), "{name}");
        }
        assert_eq!(stored.get("no_such_column"), None);
        let found: Vec<_> =
            cache.table("Port").unwrap().find_key("external_ids", "iface-id", "ns_pod").collect();
        assert_eq!(found, [stored]);
    });
    // What a fresh load brings equals what the updates made.
    let other = self::replica(&server).await;
    let content = |r: &Replica| r.read(|c| c.rows("Port").cloned().collect::<Vec<_>>());
    assert_eq!(content(&other), content(&replica));
}

#[tokio::test]
async fn changes_arrive_as_differences() {
    let server = Server::standalone(SCHEMA).await;
    let replica = replica(&server).await;
    let uuid = Uuid::from_u128(1);
    let wanted = |addresses: &[&str], ids: &[(&str, &str)]| {
        columns([
            ("addresses", addresses.iter().copied().collect()),
            ("external_ids", Datum::map(ids.iter().copied())),
            ("tag", 5i64.into()),
        ])
    };
    replica.transact(vec![port(1, "p")]).await.unwrap();
    let steps = [
        wanted(&["a", "b", "c", "d"], &[("x", "1"), ("y", "2"), ("z", "3")]),
        wanted(&["a", "b", "c", "e"], &[("x", "1"), ("y", "9"), ("z", "3")]),
        wanted(&["a"], &[("z", "3")]),
        wanted(&[], &[]),
        wanted(&["q"], &[("new", "")]),
    ];
    for step in steps {
        let row = replica.read(|c| c.row("Port", &uuid).unwrap().clone());
        let ops = diff(&row, &step);
        assert!(!ops.is_empty());
        replica.transact(ops).await.unwrap();
        let row = replica.read(|c| c.row("Port", &uuid).unwrap().clone());
        for (name, value) in &step {
            assert_eq!(row.get(name), Some(value), "{name}");
        }
        assert!(diff(&row, &step).is_empty(), "a second diff changes nothing");
    }
}

#[tokio::test]
async fn one_changed_element_is_a_mutation() {
    let server = Server::standalone(SCHEMA).await;
    let replica = replica(&server).await;
    let many: Vec<String> = (0..50).map(|n| format!("10.0.0.{n}")).collect();
    let op = Op::insert(
        "Port",
        Uuid::from_u128(1),
        columns([("name", "p".into()), ("addresses", Datum::set(&many))]),
    );
    replica.transact(vec![op]).await.unwrap();
    let row = replica.read(|c| c.row("Port", &Uuid::from_u128(1)).unwrap().clone());
    let ops = diff(&row, &columns([("addresses", many[1..].iter().chain(&["new".to_owned()]).collect())]));
    let want = vec![Mutation::delete("addresses", "10.0.0.0"), Mutation::insert("addresses", "new")];
    assert_eq!(ops, [Op::mutate("Port", Uuid::from_u128(1), want)]);
}

#[tokio::test]
async fn rows_are_found_by_index_and_by_reference() {
    let server = Server::standalone(SCHEMA).await;
    let replica = replica(&server).await;
    let mut ops: Vec<Op> = (0..100).map(|n| port(n + 1, &format!("p{n}"))).collect();
    let ports: Datum = (0..100u128).map(|n| Uuid::from_u128(n + 1)).collect();
    ops.push(Op::insert("Switch", Uuid::from_u128(1000), columns([("name", "s".into()), ("ports", ports)])));
    replica.transact(ops).await.unwrap();
    replica.read(|cache| {
        let ports = cache.table("Port").unwrap();
        let p42 = ports.find_one("name", "p42").unwrap();
        assert_eq!(p42.uuid(), Uuid::from_u128(43));
        assert!(ports.find_one("name", "none").is_none());
        let switches = cache.table("Switch").unwrap();
        assert_eq!(switches.find_element("ports", p42.uuid()).count(), 1);
    });
    let gone = Uuid::from_u128(43);
    replica
        .transact(vec![
            Op::mutate("Switch", Uuid::from_u128(1000), vec![Mutation::delete("ports", gone)]),
            Op::delete("Port", gone),
        ])
        .await
        .unwrap();
    replica.read(|cache| {
        assert!(cache.table("Port").unwrap().find_one("name", "p42").is_none());
        assert_eq!(cache.table("Switch").unwrap().find_element("ports", gone).count(), 0);
        assert_eq!(cache.table("Port").unwrap().len(), 99);
    });
}

#[tokio::test]
async fn refusals_name_the_operation() {
    let server = Server::standalone(SCHEMA).await;
    let replica = replica(&server).await;
    replica.transact(vec![port(1, "p")]).await.unwrap();
    let refused = |ops: Vec<Op>| async {
        match replica.transact(ops).await {
            Err(TxnError::Rejected(rejection)) => rejection,
            other => panic!("{other:?}"),
        }
    };
    let bad_value = Op::update("Port", Uuid::from_u128(1), columns([("tag", 5000i64.into())]));
    let rejection = refused(vec![Op::comment("x"), bad_value]).await;
    assert_eq!((rejection.op_index, &*rejection.error), (Some(1), "constraint violation"), "{rejection}");
    assert_eq!(rejection.table, "Port");

    // The unique index is checked at the commit.
    let rejection = refused(vec![port(2, "p")]).await;
    assert_eq!((rejection.op_index, &*rejection.error), (None, "constraint violation"), "{rejection}");

    let rejection = refused(vec![port(1, "q")]).await;
    assert!(rejection.is_duplicate_uuid(), "{rejection}");

    let rejection = refused(vec![Op::require_row("Port", Uuid::from_u128(9))]).await;
    assert!(rejection.is_stale() && rejection.op_index == Some(0), "{rejection}");
    replica.transact(vec![Op::require_row("Port", Uuid::from_u128(1))]).await.unwrap();
    replica.transact(vec![Op::require_absent("Port", Filter::equal("name", "q"))]).await.unwrap();
    let rejection = refused(vec![Op::require_absent("Port", Filter::equal("name", "p"))]).await;
    assert!(rejection.is_stale(), "{rejection}");

    let rejection = refused(vec![Op::delete("Nonsense", Uuid::from_u128(1))]).await;
    assert_eq!((rejection.op_index, &*rejection.table), (Some(0), "Nonsense"), "{rejection}");
    assert_eq!(replica.read(|c| c.table("Port").unwrap().len()), 1);
}

#[tokio::test]
async fn named_rows_filters_and_selects() {
    let server = Server::standalone(SCHEMA).await;
    let replica = replica(&server).await;
    let named = |name: &str| Op::InsertNamed {
        table: "Port".into(),
        name: name.to_owned(),
        row: columns([("name", "named".into()), ("external_ids", Datum::map([("a", "b")]))]),
    };
    let switch = columns([("name", "s".into()), ("ports", Datum::scalar(Atom::Named("new".into())))]);
    let ops = vec![named("new"), Op::insert("Switch", Uuid::from_u128(5), switch)];
    let chosen = replica.transact(ops).await.unwrap()[0].uuid.unwrap();
    replica.read(|c| {
        assert_eq!(
            c.row("Switch", &Uuid::from_u128(5)).unwrap().get("ports").unwrap().as_uuid(),
            Some(chosen)
        )
    });
    let filter = Filter::includes("external_ids", Datum::map([("a", "b")]));
    let results = replica
        .transact(vec![
            Op::update("Port", filter.clone(), columns([("tag", 3i64.into())])),
            Op::select("Port", filter, &["name", "tag", "up", "_uuid"]),
            Op::Abort,
        ])
        .await;
    // The abort undoes it and is told as such.
    assert_eq!(results.unwrap_err().rejection().map(|r| r.error.clone()), Some("aborted".to_owned()));
    let results = replica.transact(vec![Op::select("Port", Filter::every(), &[])]).await.unwrap();
    let row = &results[0].rows[0];
    assert_eq!(
        (row.str("name"), row.uuid(), row.key("external_ids", "a")),
        (Some("named"), Some(chosen), Some("b"))
    );
    assert_eq!(row.get("tag"), Some(&Datum::empty()));
}

#[tokio::test]
async fn only_what_the_server_has_is_followed() {
    let server = Server::standalone(SCHEMA).await;
    let spec = MonitorSpec::none()
        .table("Port", &["name", "tag", "column_of_the_future"])
        .table("Table_Of_The_Future", &[]);
    let (client, mut notices) = connect(Options::unix(server.socket(), "Test").monitor(spec));
    let Some(Notice::Up { schema, capabilities }) = notices.recv().await else { panic!("not up") };
    assert_eq!(schema.tables().len(), 1);
    assert!(capabilities.has("Port", "external_ids"));
    assert!(
        !capabilities.has("Port", "column_of_the_future") && !capabilities.has_table("Table_Of_The_Future")
    );
    assert_eq!(capabilities.version(), "1.2.3");
    let Some(Notice::Reset(first)) = notices.recv().await else { panic!("no content") };
    let mut cache = ovsdb::Cache::new(schema);
    assert!(cache.reset(&first).is_empty());
    client.transact(vec![port(1, "p")]).await.unwrap();
    // The update of our own transaction has been put before us when the result comes.
    let Some(Notice::Update(update)) = notices.try_recv() else { panic!("no update") };
    let changes = cache.apply(&update);
    assert_eq!(changes.len(), 1);
    assert!(changes[0].is_insert() && changes[0].table() == "Port");
    let row = changes[0].new.as_ref().unwrap();
    assert_eq!((row.str("name"), row.get("external_ids")), (Some("p"), None));
}

#[tokio::test]
async fn waiting_for_a_row() {
    let server = Server::standalone(SCHEMA).await;
    let (writer, reader) = (replica(&server).await, replica(&server).await);
    let waiting =
        reader.wait_for(|cache| cache.table("Port")?.find_one("name", "late").map(|row| row.uuid()));
    let (found, made) = tokio::join!(waiting, writer.transact(vec![port(3, "late")]));
    made.unwrap();
    assert_eq!(found, Uuid::from_u128(3));
}
