//! The bit of HTTP/1.1 the shim needs: one POST, one answer.

use std::time::Duration;

use crate::{COUNTED_HEADER, STARTED_HEADER};

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body, decoded from chunks if it came so.
    pub body: Vec<u8>,
    /// The server has counted how long the request took.
    pub counted: bool,
}

/// A POST of JSON as bytes; the connection closes after the answer. `started` is the shim's start, since the epoch.
pub fn post(path: &str, body: &[u8], started: Option<Duration>) -> Vec<u8> {
    let started = started.map(|at| format!("{STARTED_HEADER}: {}\r\n", at.as_nanos())).unwrap_or_default();
    let mut out = format!(
        "POST {path} HTTP/1.1\r\nHost: dummy\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {started}Connection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    out.extend_from_slice(body);
    out
}

/// Reads an answer out of what arrived so far: none if more must come. `closed` says that nothing more will.
/// An error is a text for the operator.
pub fn parse(bytes: &[u8], closed: bool) -> Result<Option<Answer>, String> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        return if closed {
            Err("the server closed the connection before answering".into())
        } else {
            Ok(None)
        };
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "the answer's head is not text".to_owned())?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .filter(|line| line.starts_with("HTTP/1."))
        .and_then(|line| line.split(' ').nth(1)?.parse::<u16>().ok())
        .ok_or_else(|| "the answer is not HTTP".to_owned())?;
    let header = |name: &str| {
        head.split("\r\n")
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim().eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    };
    let rest = &bytes[end + 4..];
    if (100..200).contains(&status) {
        return parse(rest, closed);
    }
    let body = if header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
        unchunk(rest)?
    } else if let Some(length) = header("content-length") {
        let length: usize =
            length.parse().map_err(|_| format!("content-length {length:?} is not a number"))?;
        rest.get(..length).map(<[u8]>::to_vec)
    } else {
        closed.then(|| rest.to_vec())
    };
    let counted = header(COUNTED_HEADER).is_some();
    match body {
        Some(body) => Ok(Some(Answer { status, body, counted })),
        None if closed => Err("the server closed the connection within its answer".into()),
        None => Ok(None),
    }
}

fn unchunk(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let Some(end) = find(bytes, b"\r\n") else { return Ok(None) };
        let text = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
        let size = text.split(';').next().unwrap_or_default().trim();
        let size =
            usize::from_str_radix(size, 16).map_err(|_| format!("chunk size {size:?} is not a number"))?;
        let start = end + 2;
        let stop = start.checked_add(size).ok_or_else(|| "a chunk is too large".to_owned())?;
        if size == 0 {
            return Ok(Some(body));
        }
        let Some(chunk) = bytes.get(start..stop) else { return Ok(None) };
        body.extend_from_slice(chunk);
        let Some(next) = bytes.get(stop + 2..) else { return Ok(None) };
        bytes = next;
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}
