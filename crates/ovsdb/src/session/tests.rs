use proptest::prelude::*;

use super::*;
use crate::{Cache, Datum};

const SCHEMA: &str = r#"{"name":"T","version":"1.0.0","tables":{"Port":{"indexes":[["name"]],"columns":{
    "name":{"type":"string"},"n":{"type":"integer"},"r":{"type":"real"},
    "set":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "refs":{"type":{"key":{"type":"uuid","refTable":"Port"},"min":0,"max":"unlimited"}},
    "map":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}"#;
const A: &str = "00000000-0000-0000-0000-00000000000a";
const B: &str = "00000000-0000-0000-0000-00000000000b";
const TXN: &str = "11111111-0000-0000-0000-000000000001";

fn session() -> Session {
    let plan = Plan { database: "T".into(), monitor: MonitorSpec::all(), leader_only: true };
    Session::start(plan, Memory::default())
}

fn feed(session: &mut Session, text: &str) -> Vec<Event> {
    session.receive(text.as_bytes()).unwrap();
    events(session)
}

fn events(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.event()).collect()
}

fn sent(session: &mut Session) -> Vec<Value> {
    let out = std::mem::take(session.output());
    serde_json::Deserializer::from_slice(&out).into_iter().map(Result::unwrap).collect()
}

fn server_row(extra: &str) -> String {
    format!(r#"{{"id":1,"error":null,"result":{{"Database":{{"{A}":{{"new":{{"name":"T",{extra}}}}}}}}}}}"#)
}

fn schema_reply() -> String {
    format!(r#"{{"id":2,"error":null,"result":{SCHEMA}}}"#)
}

/// A session that is connected to a standalone server and awaits the first content.
fn opened() -> Session {
    let mut session = session();
    feed(&mut session, &server_row(r#""model":"standalone","connected":true,"leader":true"#));
    let events = feed(&mut session, &schema_reply());
    assert!(matches!(&events[..], [Event::Up { .. }]), "{events:?}");
    session
}

fn first_content(session: &Session) -> (Cache, Update) {
    let Some(schema) = &session.memory.monitored else { panic!("no schema") };
    (Cache::new(schema.clone()), Update::empty(schema.clone()))
}

#[test]
fn the_newest_monitor_is_tried_first_and_older_ones_after_it() {
    let mut session = opened();
    let requests = sent(&mut session);
    let methods: Vec<_> = requests.iter().map(|r| r["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["monitor", "get_schema", "monitor_cond_since"]);
    assert_eq!(requests[2]["params"][2]["Port"][0]["columns"].as_array().unwrap().len(), 6);
    feed(&mut session, r#"{"id":3,"result":null,"error":{"error":"unknown method"}}"#);
    assert_eq!(sent(&mut session)[0]["method"], "monitor_cond");
    feed(&mut session, r#"{"id":4,"result":null,"error":"unknown method"}"#);
    let request = sent(&mut session);
    assert_eq!(
        (&request[0]["method"], request[0]["params"][2]["Port"].is_object()),
        (&json!("monitor"), true)
    );
    let reply =
        format!(r#"{{"id":5,"error":null,"result":{{"Port":{{"{A}":{{"new":{{"name":"a","n":1}}}}}}}}}}"#);
    let (mut cache, _) = first_content(&session);
    let events = feed(&mut session, &reply);
    let [Event::Reset(first)] = &events[..] else { panic!("{events:?}") };
    cache.reset(first);
    assert!(session.is_live());

    // Updates of the oldest form: the old values of what changed, and the whole new row.
    let update = format!(
        r#"{{"id":null,"method":"update","params":["rows",{{"Port":{{
            "{A}":{{"old":{{"n":1}},"new":{{"name":"a","n":2}}}},"{B}":{{"new":{{"name":"b"}}}}}}}}]}}"#
    );
    let events = feed(&mut session, &update);
    let [Event::Update(update)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(cache.apply(update).len(), 2);
    assert_eq!(cache.table("Port").unwrap().find_one("name", "a").unwrap().int("n"), Some(2));
    let gone = format!(
        r#"{{"id":null,"method":"update","params":["rows",{{"Port":{{"{A}":{{"old":{{"name":"a","n":2}}}}}}}}]}}"#
    );
    let events = feed(&mut session, &gone);
    let [Event::Update(update)] = &events[..] else { panic!("{events:?}") };
    assert!(cache.apply(update)[0].is_delete());
    assert!(cache.table("Port").unwrap().find_one("name", "a").is_none());
}

#[test]
fn differences_are_applied_to_sets_and_maps() {
    let mut session = opened();
    let (mut cache, _) = first_content(&session);
    let initial = format!(
        r#"{{"id":3,"error":null,"result":[false,"{TXN}",{{"Port":{{"{A}":{{"initial":
            {{"name":"a","set":["set",["x","y"]],"map":["map",[["k","1"],["l","2"]]]}}}}}}}}]}}"#
    );
    let events = feed(&mut session, &initial);
    let [Event::Reset(first)] = &events[..] else { panic!("{events:?}") };
    cache.reset(first);
    let modify = format!(
        r#"{{"id":null,"method":"update3","params":["rows","{TXN}",{{"Port":{{"{A}":{{"modify":
            {{"name":"b","set":["set",["y","z"]],"map":["map",[["k","1"],["l","3"],["m","4"]]]}}}}}}}}]}}"#
    );
    let events = feed(&mut session, &modify);
    let [Event::Update(update)] = &events[..] else { panic!("{events:?}") };
    let changes = cache.apply(update);
    let row = changes[0].new.as_ref().unwrap();
    assert_eq!(row.str("name"), Some("b"));
    assert_eq!(row.get("set"), Some(&Datum::set(["x", "z"])));
    assert_eq!(row.get("map"), Some(&Datum::map([("l", "3"), ("m", "4")])));
    assert!(changes[0].changed("set") && !changes[0].changed("n"));
    assert_eq!(session.end(false).last_txn, Some(TXN.parse().unwrap()));
}

#[test]
fn a_difference_to_an_unknown_row_is_an_inconsistency() {
    let mut session = opened();
    let (mut cache, _) = first_content(&session);
    feed(&mut session, r#"{"id":3,"error":null,"result":[false,"",{}]}"#);
    let modify = format!(
        r#"{{"id":null,"method":"update2","params":["rows",{{"Port":{{"{A}":{{"modify":{{"n":1}}}}}}}}]}}"#
    );
    let events = feed(&mut session, &modify);
    let [Event::Update(update)] = &events[..] else { panic!("{events:?}") };
    assert!(cache.apply(update).is_empty());
    assert_eq!(cache.inconsistencies(), 1);
}

#[test]
fn only_the_leader_will_do() {
    let clustered = r#""model":"clustered","connected":true,"leader":"#;
    let mut follower = session();
    let refused = follower.receive(server_row(&format!("{clustered}false")).as_bytes());
    assert!(matches!(refused, Err(SessionError::WrongServer(_))));

    let mut leader = session();
    feed(&mut leader, &server_row(&format!("{clustered}true")));
    feed(&mut leader, &schema_reply());
    assert!(leader.is_up());
    let lost = format!(
        r#"{{"id":null,"method":"update","params":["server",{{"Database":{{"{A}":
            {{"old":{{"leader":true}},"new":{{"name":"T",{clustered}false}}}}}}}}]}}"#
    );
    assert!(matches!(leader.receive(lost.as_bytes()), Err(SessionError::WrongServer(_))));

    // A member without its cluster will not do even for reading.
    let plan = Plan { leader_only: false, ..session().plan };
    let mut cut_off = Session::start(plan, Memory::default());
    let alone = server_row(r#""model":"clustered","connected":false,"leader":false"#);
    assert!(matches!(cut_off.receive(alone.as_bytes()), Err(SessionError::WrongServer(_))));
}

#[test]
fn servers_without_a_word_about_themselves_are_taken() {
    let mut session = session();
    feed(&mut session, r#"{"id":1,"result":null,"error":{"error":"unknown database"}}"#);
    assert!(matches!(&feed(&mut session, &schema_reply())[..], [Event::Up { .. }]));
}

#[test]
fn the_servers_probe_is_answered() {
    let mut session = opened();
    sent(&mut session);
    feed(&mut session, r#"{"id":"echo","method":"echo","params":["x"]}"#);
    assert_eq!(sent(&mut session), [json!({"id":"echo","result":["x"],"error":null})]);
}

#[test]
fn replies_come_after_the_updates_before_them() {
    let mut session = opened();
    feed(&mut session, r#"{"id":3,"error":null,"result":[false,"",{}]}"#);
    session.transact(77, &[Op::comment("c")]);
    let both = format!(
        r#"{{"id":null,"method":"update2","params":["rows",{{"Port":{{"{A}":{{"insert":{{}}}}}}}}]}}
           {{"id":4,"error":null,"result":[{{}}]}}"#
    );
    let events = feed(&mut session, &both);
    assert!(
        matches!(&events[..], [Event::Update(_), Event::Reply { token: 77, result: Ok(_) }]),
        "{events:?}"
    );
}

#[test]
fn answers_that_are_none_are_refused() {
    for strange in [
        r#"{"id":99,"result":null,"error":null}"#,
        r#"{"id":2,"result":{"name":5},"error":null}"#,
        r#"{"id":2,"result":{"name":"T","tables":{"P":{"columns":{"c":{"type":"colour"}}}}},"error":null}"#,
        r#"{"id":2,"result":null,"error":{"error":"unknown database"}}"#,
        "{\"id\":2 ",
        "[]",
    ] {
        let mut session = session();
        feed(&mut session, &server_row(r#""model":"standalone","connected":true,"leader":true"#));
        let outcome = session.receive(strange.as_bytes());
        assert!(outcome.is_err() || strange.ends_with(' '), "{strange}");
        assert!(events(&mut session).is_empty());
    }
}

/// What a server sends in the life of a connection.
fn conversation() -> Vec<u8> {
    let content = format!(
        r#"{{"id":3,"error":null,"result":[false,"{TXN}",{{"Port":{{
            "{A}":{{"initial":{{"name":"a\u00e9\"{{","n":-5,"r":1e3,"set":["set",["x"]],"refs":["uuid","{B}"]}}}},
            "{B}":{{"initial":{{"map":["map",[["k","v"],["l",""]]],"refs":["set",[["uuid","{A}"]]]}}}}}}}}]}}"#
    );
    let update = format!(
        r#"{{"id":null,"method":"update3","params":["rows","{TXN}",{{"Port":{{
            "{A}":{{"modify":{{"set":["set",["x","y"]],"map":["map",[["q","1"]]]}}}},"{B}":{{"delete":null}}}}}}]}}"#
    );
    let reply = r#"{"id":4,"error":null,"result":[{"uuid":["uuid","00000000-0000-0000-0000-00000000000c"]},
        {"rows":[{"name":"x","map":["map",[]],"refs":["set",[]]}]},{"count":1}]}"#;
    let echo = r#"{"id":"echo","method":"echo","params":[]}"#;
    let standalone = server_row(r#""model":"standalone","connected":true,"leader":true"#);
    [&standalone, &schema_reply(), &content, &update, reply, echo].map(String::from).concat().into_bytes()
}

/// Lives through a conversation in pieces; nothing may panic whatever it is.
fn live_through(bytes: &[u8], piece: usize) {
    let mut session = session();
    let mut cache: Option<Cache> = None;
    for piece in bytes.chunks(piece.max(1)) {
        if session.receive(piece).is_err() {
            break;
        }
        if session.is_live() && session.next_request() == 4 {
            session.transact(1, &[Op::comment("a"), Op::comment("b"), Op::comment("c")]);
        }
        while let Some(event) = session.event() {
            match event {
                Event::Up { schema, .. } => cache = Some(Cache::new(schema)),
                Event::Reset(update) => drop(cache.as_mut().map(|c| c.reset(&update))),
                Event::Update(update) => drop(cache.as_mut().map(|c| c.apply(&update))),
                Event::Reply { .. } => {}
            }
        }
    }
}

#[test]
fn the_conversation_is_understood_in_pieces_of_any_size() {
    let bytes = conversation();
    for piece in 1..200 {
        let mut session = session();
        let mut told = Vec::new();
        for piece in bytes.chunks(piece) {
            session.receive(piece).unwrap();
            told.extend(events(&mut session));
            if session.is_live() && session.next_request() == 4 {
                session.transact(1, &[Op::comment("a"), Op::comment("b"), Op::comment("c")]);
            }
            if session.is_live() && told.len() == 4 {
                break;
            }
        }
        let kinds: Vec<_> = told
            .iter()
            .map(|event| match event {
                Event::Up { .. } => "up",
                Event::Reset(_) => "reset",
                Event::Update(_) => "update",
                Event::Reply { result: Ok(_), .. } => "made",
                Event::Reply { .. } => "refused",
            })
            .collect();
        assert_eq!(kinds, ["up", "reset", "update", "made"], "in pieces of {piece}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_no_harm(bytes: Vec<u8>, piece in 1usize..64) {
        live_through(&bytes, piece);
    }

    #[test]
    fn json_like_bytes_do_no_harm(text in "[\\[\\]{}\":,\\\\ 0-9a-z-]{0,300}", piece in 1usize..64) {
        live_through(text.as_bytes(), piece);
        live_through(format!("{{{text}").as_bytes(), piece);
    }

    #[test]
    fn damaged_conversations_do_no_harm(
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<u8>()), 1..8),
        piece in 1usize..4096,
    ) {
        let mut bytes = conversation();
        for (place, kind, value) in damage {
            let at = place.index(bytes.len());
            match kind {
                0 => bytes[at] = value,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"[]{}\",:\\0-"[usize::from(value) % 10]),
                _ => {
                    let end = (at + usize::from(value)).min(bytes.len());
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
            }
        }
        live_through(&bytes, piece);
    }

    #[test]
    fn nesting_is_bounded(open in "[\\[{]{1,2000}", inside_row: bool) {
        let mut bytes = conversation();
        if inside_row {
            let at = bytes.windows(9).position(|w| w == b"\"initial\"").map_or(0, |at| at + 10);
            bytes.splice(at..at, open.bytes());
        } else {
            bytes.extend(open.bytes());
        }
        live_through(&bytes, 512);
    }
}
