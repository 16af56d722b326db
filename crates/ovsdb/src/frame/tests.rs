use super::*;

const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";

#[derive(Debug, PartialEq, Clone)]
enum Seen {
    Row(String, String),
    Message(String),
}

fn scan(chunks: &[&[u8]]) -> Result<Vec<Seen>, FrameError> {
    let mut framer = Framer::default();
    let mut seen = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for chunk in chunks {
        framer.push(chunk, |piece| {
            seen.push(match piece {
                Piece::Row { table, json, .. } => Seen::Row(text(table), text(json)),
                Piece::Message(json) => Seen::Message(text(json)),
            });
            Ok::<(), FrameError>(())
        })?;
    }
    Ok(seen)
}

fn row(table: &str, json: &str) -> Seen {
    Seen::Row(table.to_owned(), json.to_owned())
}

fn message(json: &str) -> Seen {
    Seen::Message(json.to_owned())
}

#[test]
fn rows_leave_the_message_before_it_ends() {
    let text = format!(
        r#"{{"id":1,"result":[true,"t",{{"A":{{"{UUID}":{{"initial":{{"n":"a}}\"{{"}}}},"{UUID}":{{"delete":null}}}},"B":{{}}}}],"error":null}}"#
    );
    let want = vec![
        row("A", r#"{"initial":{"n":"a}\"{"}}"#),
        row("A", r#"{"delete":null}"#),
        message(r#"{"id":1,"result":[true,"t",{"A":{},"B":{}}],"error":null}"#),
    ];
    assert_eq!(scan(&[text.as_bytes()]).unwrap(), want);
    // Cut anywhere, also within escapes, the same is found.
    for cut in 0..text.len() {
        let (a, b) = text.as_bytes().split_at(cut);
        assert_eq!(scan(&[a, b]).unwrap(), want, "cut at {cut}");
    }
    let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    assert_eq!(scan(&single).unwrap(), want);
}

#[test]
fn first_reply_of_older_monitors() {
    let text = format!(r#"{{"result":{{"A": {{"{UUID}" : {{"new":{{}}}} }}}},"id":2}}"#);
    assert_eq!(
        scan(&[text.as_bytes()]).unwrap(),
        [row("A", r#"{"new":{}}"#), message(r#"{"result":{"A":{}},"id":2}"#)]
    );
}

#[test]
fn other_messages_stay_whole() {
    let schema = r#"{"id":1,"result":{"name":"X","tables":{"A":{"columns":{"c":{"type":"string"}}},"B":{"columns":{}}}}}"#;
    let select =
        format!(r#"{{"id":2,"result":[{{"rows":[{{"_uuid":["uuid","{UUID}"],"m":["map",[]]}}]}},{{}}]}}"#);
    let strange =
        format!(r#"{{"id":2,"result":{{"A":{{"x":1,"{UUID}":[1,2],"{UUID}":null,"y":"z","{UUID}":"s"}}}}}}"#);
    for text in [schema, &select, &strange, r#"{"id":"echo","method":"echo","params":[]}"#] {
        assert_eq!(scan(&[text.as_bytes()]).unwrap(), [message(text)]);
    }
    let two = r#"{"id":1} {"id":2}"#;
    assert_eq!(scan(&[two.as_bytes()]).unwrap(), [message(r#"{"id":1}"#), message(r#"{"id":2}"#)]);
}

#[test]
fn what_is_not_json_rpc_is_refused() {
    assert_eq!(scan(&[b"HTTP/1.1 200"]), Err(FrameError::NotAMessage(b'H')));
    assert_eq!(scan(&[b"{\"a\":[}"]), Err(FrameError::Unbalanced));
    assert_eq!(scan(&["{\"a\":".as_bytes(), &[b'['; 100]]), Err(FrameError::TooDeep));
}
