//! A response body cut into lines without copying them.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;

use crate::error::chain;

/// No object of a healthy server comes near this; etcd itself stops at a few MB.
const LONGEST_LINE: usize = 32 << 20;

pub(crate) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// How much of `buffer` is known to hold no line end.
    searched: usize,
}

impl Lines {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line without its end. `Ok(None)` at the end of the stream; a line cut off there is not returned.
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                line.truncate(line.len() - 1);
                self.searched = 0;
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            if self.searched > LONGEST_LINE {
                return Err(format!("a line longer than {LONGEST_LINE} bytes"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        if self.buffer.is_empty() {
                            self.buffer = BytesMut::from(data);
                        } else {
                            self.buffer.extend_from_slice(&data);
                        }
                    }
                }
                Some(Err(error)) => return Err(chain(&error)),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_cut_and_an_unfinished_one_is_dropped() {
        let mut lines = Lines::new(Body::from(b"one\n\ntwo\nthr".to_vec()));
        let mut got = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            got.push(String::from_utf8(line.to_vec()).unwrap());
        }
        assert_eq!(got, ["one", "", "two"]);
    }
}
