//! JSON-RPC 1.0 messages (RFC 7047, section 4).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Fields, Op, OpResult, Rejection, Uuid};

/// A message without its rows.
#[derive(Debug)]
pub(crate) enum Message {
    /// The answer to a request of ours.
    Reply { id: u64, outcome: Result<Value, Value> },
    /// A request of the server's, with an identifier to answer to.
    Request { method: String, params: Value, id: Value },
    /// A message that wants no answer.
    Notification { method: String, params: Value },
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    error: Value,
    #[serde(default)]
    id: Value,
}

/// A transaction's request.
#[derive(Serialize)]
struct Request<'a, P> {
    id: u64,
    method: &'a str,
    params: P,
}

/// Appends a request to what is to be sent.
pub(crate) fn request(out: &mut Vec<u8>, id: u64, method: &str, params: impl Serialize) {
    append(out, &Request { id, method, params });
}

/// Appends the answer to a request of the server's.
pub(crate) fn answer(out: &mut Vec<u8>, id: &Value, result: &Value) {
    append(out, &serde_json::json!({ "id": id, "result": result, "error": null }));
}

/// Appends a transaction.
pub(crate) fn transact(out: &mut Vec<u8>, id: u64, database: &str, ops: &[Op]) {
    struct Params<'a>(&'a str, &'a [Op]);
    impl Serialize for Params<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeSeq;
            let mut seq = serializer.serialize_seq(Some(1 + self.1.len()))?;
            seq.serialize_element(self.0)?;
            for op in self.1 {
                seq.serialize_element(op)?;
            }
            seq.end()
        }
    }
    request(out, id, "transact", Params(database, ops));
}

fn append(out: &mut Vec<u8>, message: &impl Serialize) {
    let before = out.len();
    // Writing to memory cannot fail, and our types have no keys that JSON lacks; were it otherwise, nothing
    // must be sent in half.
    if serde_json::to_writer(&mut *out, message).is_err() {
        out.truncate(before);
    }
}

// === impl Message ===

impl Message {
    pub(crate) fn parse(json: &[u8]) -> Result<Message, serde_json::Error> {
        let raw: Raw = serde_json::from_slice(json)?;
        Ok(match raw.method {
            Some(method) if raw.id.is_null() => Message::Notification { method, params: raw.params },
            Some(method) => Message::Request { method, params: raw.params, id: raw.id },
            None => Message::Reply {
                // A reply to nothing we asked: no request has this number.
                id: raw.id.as_u64().unwrap_or(u64::MAX),
                outcome: if raw.error.is_null() { Ok(raw.result) } else { Err(raw.error) },
            },
        })
    }
}

/// What can be wrong with the outcome of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    Rejected(Rejection),
    Protocol(String),
}

/// The results of a transaction, one for each operation.
pub(crate) fn results(
    outcome: Result<Value, Value>,
    table: impl Fn(usize) -> String,
    ops: usize,
) -> Result<Vec<OpResult>, Failure> {
    let results = match outcome {
        Ok(Value::Array(results)) => results,
        Ok(other) => return Err(Failure::Protocol(format!("the result is {}", brief(&other)))),
        Err(error) => {
            let name = error.as_str().or_else(|| error["error"].as_str());
            let Some(name) = name else {
                return Err(Failure::Protocol(brief(&error)));
            };
            return Err(Failure::Rejected(Rejection {
                op_index: None,
                table: String::new(),
                error: name.to_owned(),
                details: error["details"].as_str().unwrap_or_default().to_owned(),
            }));
        }
    };
    // One more result than operations tells why the commit as a whole failed.
    for (at, result) in results.iter().enumerate() {
        if let Some(error) = result["error"].as_str() {
            return Err(Failure::Rejected(Rejection {
                op_index: (at < ops).then_some(at),
                table: if at < ops { table(at) } else { String::new() },
                error: error.to_owned(),
                details: result["details"].as_str().unwrap_or_default().to_owned(),
            }));
        }
    }
    if results.len() < ops {
        return Err(Failure::Protocol(format!("{} results for {ops} operations", results.len())));
    }
    results.into_iter().take(ops).map(op_result).collect()
}

fn op_result(mut result: Value) -> Result<OpResult, Failure> {
    let uuid = match &result["uuid"] {
        Value::Array(pair) => pair.get(1).and_then(Value::as_str).and_then(|u| Uuid::parse(u.as_bytes())),
        _ => None,
    };
    let rows = match result.get_mut("rows").map(Value::take) {
        None | Some(Value::Null) => Vec::new(),
        Some(rows) => Vec::<Fields>::deserialize(rows).map_err(|e| Failure::Protocol(e.to_string()))?,
    };
    Ok(OpResult { count: result["count"].as_u64().unwrap_or(0), uuid, rows })
}

/// The beginning of a value, for messages.
pub(crate) fn brief(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().take(300).collect()
}
