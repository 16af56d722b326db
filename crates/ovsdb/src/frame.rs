//! Framing: cuts the byte stream into messages, and the big messages into rows.
//!
//! JSON-RPC over a stream has no lengths, so the end of a message is found by counting brackets outside of
//! strings. While counting, the scanner recognises table updates by their place (below `result` or `params`,
//! at most one array deeper, an object of objects whose keys are UUIDs) and hands out each row as soon as it
//! is complete. What is left of the message is small, whatever the size of the database: the first load
//! never has the message in memory.

use crate::Uuid;

/// The scanner of one connection.
#[derive(Default)]
pub(crate) struct Framer {
    /// The open containers, outermost first; true for objects.
    open: Vec<bool>,
    /// The last key seen in each of the outer containers.
    keys: [Vec<u8>; ROW_DEPTH],
    /// The message without its rows.
    rest: Vec<u8>,
    /// The row being read.
    row: Vec<u8>,
    entry: Entry,
    text: Text,
    escaped: bool,
    /// Whether the next string in an object is a key.
    before_key: bool,
    /// Whether the table object being read has an entry in `rest` already.
    kept_entry: bool,
}

/// Where the scanner is within an entry of a table object.
#[derive(Default, Clone, Copy, PartialEq)]
enum Entry {
    #[default]
    None,
    /// Behind a key that is a UUID, before the value.
    Named(Uuid),
    /// In the row's object, which was opened at this depth.
    Inside(Uuid, usize),
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Text {
    #[default]
    No,
    /// A key of an outer container.
    Key,
    /// A key of what may be a table object; not kept before it is known.
    RowKey,
    /// Any other string.
    Other,
}

/// What the scanner found.
pub(crate) enum Piece<'a> {
    /// One row of the message that follows: the JSON object that tells of it.
    Row { table: &'a [u8], uuid: Uuid, json: &'a [u8] },
    /// A message without its rows, which came before it.
    Message(&'a [u8]),
}

/// Why a stream is not JSON-RPC.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("not a JSON-RPC stream: byte {0:#04x} where a message was expected")]
    NotAMessage(u8),
    #[error("malformed message: unbalanced brackets")]
    Unbalanced,
    #[error("message nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("message of more than {MAX_PIECE} bytes")]
    TooLong,
}

/// Containers open around a row at most: message, array, tables, table.
const ROW_DEPTH: usize = 4;
const MAX_DEPTH: usize = 64;
const MAX_PIECE: usize = 256 << 20;
/// Buffers larger than this are given back when a message ends.
const KEEP: usize = 64 << 10;

// === impl Framer ===

impl Framer {
    /// Scans more bytes of the stream and hands out what they complete.
    pub(crate) fn push<E: From<FrameError>>(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = 0;
        while at < bytes.len() {
            if self.text != Text::No {
                at += self.string(&bytes[at..]);
                if self.rest.len() + self.row.len() > MAX_PIECE {
                    return Err(FrameError::TooLong.into());
                }
                continue;
            }
            let byte = bytes[at];
            at += 1;
            if self.open.is_empty() && byte != b'{' {
                if byte.is_ascii_whitespace() {
                    continue;
                }
                return Err(FrameError::NotAMessage(byte).into());
            }
            match byte {
                b'"' => self.open_string(),
                b'{' | b'[' => self.open_container(byte)?,
                b'}' | b']' => {
                    self.close_container(byte)?;
                    match self.entry {
                        Entry::Inside(uuid, depth) if self.open.len() == depth => {
                            let table = &self.keys[depth - 2];
                            each(Piece::Row { table, uuid, json: &self.row })?;
                            self.entry = Entry::None;
                            reuse(&mut self.row);
                        }
                        _ if self.open.is_empty() => {
                            each(Piece::Message(&self.rest))?;
                            reuse(&mut self.rest);
                            self.keys.iter_mut().for_each(reuse);
                        }
                        _ => {}
                    }
                }
                _ => self.other(byte),
            }
        }
        Ok(())
    }

    /// Whether the innermost container is, by its place, an object of rows.
    fn in_table(&self) -> bool {
        matches!(*self.open, [true, true, true] | [true, false, true, true])
    }

    fn keep(&mut self, byte: u8) {
        match self.entry {
            Entry::Inside(..) => self.row.push(byte),
            _ => self.rest.push(byte),
        }
    }

    /// Keeps the key of an entry that turned out to be no row.
    fn keep_key(&mut self) {
        if self.kept_entry {
            self.rest.push(b',');
        }
        self.kept_entry = true;
        self.rest.push(b'"');
        self.rest.extend_from_slice(&self.keys[self.open.len() - 1]);
        self.rest.push(b'"');
        if let Entry::Named(_) = self.entry {
            self.rest.push(b':');
            self.entry = Entry::None;
        }
    }

    fn open_string(&mut self) {
        let is_key = std::mem::take(&mut self.before_key) && self.open.last() == Some(&true);
        let inside = matches!(self.entry, Entry::Inside(..));
        if is_key && !inside && self.open.len() <= ROW_DEPTH {
            self.keys[self.open.len() - 1].clear();
            if self.in_table() {
                self.text = Text::RowKey;
                return;
            }
            self.text = Text::Key;
        } else {
            self.text = Text::Other;
        }
        if let Entry::Named(_) = self.entry {
            self.keep_key();
        }
        self.keep(b'"');
    }

    /// Takes the bytes of a string as far as they go; tells how many.
    fn string(&mut self, bytes: &[u8]) -> usize {
        let mut end = 0;
        let mut done = false;
        while end < bytes.len() && !done {
            if std::mem::take(&mut self.escaped) {
                end += 1;
                continue;
            }
            match bytes[end..].iter().position(|b| matches!(b, b'"' | b'\\')) {
                None => end = bytes.len(),
                Some(skip) => {
                    self.escaped = bytes[end + skip] == b'\\';
                    done = !self.escaped;
                    end += skip + 1;
                }
            }
        }
        let taken = &bytes[..end];
        let content = &bytes[..end - usize::from(done)];
        if matches!(self.text, Text::Key | Text::RowKey) {
            self.keys[self.open.len() - 1].extend_from_slice(content);
        }
        match (self.text, self.entry) {
            (Text::RowKey, _) => {}
            (_, Entry::Inside(..)) => self.row.extend_from_slice(taken),
            _ => self.rest.extend_from_slice(taken),
        }
        if done {
            if self.text == Text::RowKey {
                match Uuid::parse(&self.keys[self.open.len() - 1]) {
                    Some(uuid) => self.entry = Entry::Named(uuid),
                    None => self.keep_key(),
                }
            }
            self.text = Text::No;
        }
        end
    }

    fn open_container(&mut self, byte: u8) -> Result<(), FrameError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(FrameError::TooDeep);
        }
        if let Entry::Named(uuid) = self.entry {
            if byte == b'{' {
                self.entry = Entry::Inside(uuid, self.open.len());
            } else {
                self.keep_key();
            }
        }
        self.keep(byte);
        self.open.push(byte == b'{');
        self.before_key = byte == b'{';
        if self.in_table() {
            self.kept_entry = false;
        }
        Ok(())
    }

    fn close_container(&mut self, byte: u8) -> Result<(), FrameError> {
        if let Entry::Named(_) = self.entry {
            self.keep_key();
        }
        if self.open.pop() != Some(byte == b'}') {
            return Err(FrameError::Unbalanced);
        }
        self.before_key = false;
        self.keep(byte);
        Ok(())
    }

    fn other(&mut self, byte: u8) {
        if byte.is_ascii_whitespace() {
            return;
        }
        if let Entry::Named(_) = self.entry {
            if byte == b':' {
                return;
            }
            self.keep_key();
        }
        if byte == b',' {
            self.before_key = self.open.last() == Some(&true);
            // Commas between rows go with the rows; those between kept entries are set with the keys.
            if self.entry == Entry::None && self.in_table() {
                return;
            }
        }
        self.keep(byte);
    }
}

fn reuse(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEEP);
}

#[cfg(test)]
mod tests;
