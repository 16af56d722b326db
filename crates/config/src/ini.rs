//! The file's INI dialect: that of Git's configuration files, as Go's gcfg reads it.
//!
//! `[section]`, `[section "name"]`, `key = value`, `key` alone for true, comments after `;` or `#`, values in double
//! quotes with `\n \t \b \" \\`, a backslash at the end of a line to continue it. Names ignore case.

/// One `key = value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) section: String,
    pub(crate) key: String,
    /// None where the key stands alone.
    pub(crate) value: Option<String>,
    pub(crate) line: usize,
}

/// Everything in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ini {
    /// Section headers with their lines, empty sections included.
    pub(crate) sections: Vec<(String, usize)>,
    pub(crate) entries: Vec<Entry>,
}

/// A place in the text and what is wrong there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) reason: String,
}

struct Scanner<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
    column: usize,
}

impl Scanner<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    fn fail<T>(&self, reason: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { line: self.line, column: self.column, reason: reason.into() })
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|c| c == ' ' || c == '\t' || c == '\r') {
            self.next();
        }
    }

    fn comment(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.next();
        }
    }

    /// Letters, digits and dashes; a letter first.
    fn name(&mut self, what: &str) -> Result<String, SyntaxError> {
        if !self.peek().is_some_and(char::is_alphabetic) {
            let found = self.peek().map_or("the end of the file".to_owned(), |c| format!("{c:?}"));
            return self.fail(format!("expected {what}, found {found}"));
        }
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_') {
            name.push(c);
            self.next();
        }
        Ok(name)
    }

    /// Nothing but a comment may follow on the line.
    fn line_end(&mut self, after: &str) -> Result<(), SyntaxError> {
        self.blanks();
        match self.peek() {
            None | Some('\n') => Ok(()),
            Some(';' | '#') => {
                self.comment();
                Ok(())
            }
            Some(c) => self.fail(format!("unexpected {c:?} after {after}")),
        }
    }

    fn header(&mut self) -> Result<String, SyntaxError> {
        self.next();
        self.blanks();
        let mut section = self.name("a section name")?;
        self.blanks();
        if self.peek() == Some('"') {
            let sub = self.quoted("section name")?;
            section = format!("{section} \"{sub}\"");
            self.blanks();
        }
        if self.peek() != Some(']') {
            return self.fail(format!("expected ']' after section name {section:?}"));
        }
        self.next();
        self.line_end("the section header")?;
        Ok(section)
    }

    fn escape(&mut self) -> Result<Option<char>, SyntaxError> {
        self.next();
        let c = match self.peek() {
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('b') => Some('\u{8}'),
            Some(c @ ('"' | '\\')) => Some(c),
            Some('\n') => None,
            Some('\r') => {
                self.next();
                if self.peek() != Some('\n') {
                    return self.fail("unknown escape; allowed are \\n \\t \\b \\\" \\\\ and a line end");
                }
                None
            }
            _ => return self.fail("unknown escape; allowed are \\n \\t \\b \\\" \\\\ and a line end"),
        };
        self.next();
        Ok(c)
    }

    fn quoted(&mut self, what: &str) -> Result<String, SyntaxError> {
        let (line, column) = (self.line, self.column);
        self.next();
        let mut text = String::new();
        loop {
            match self.peek() {
                Some('"') => {
                    self.next();
                    return Ok(text);
                }
                Some('\\') => text.extend(self.escape()?),
                None | Some('\n') => {
                    return Err(SyntaxError {
                        line,
                        column,
                        reason: format!("the quote of this {what} is not closed"),
                    });
                }
                Some(c) => {
                    text.push(c);
                    self.next();
                }
            }
        }
    }

    fn value(&mut self) -> Result<String, SyntaxError> {
        self.blanks();
        let mut text = String::new();
        // Blanks count only once something follows them.
        let mut pending = String::new();
        loop {
            match self.peek() {
                None | Some('\n' | ';' | '#') => break,
                Some(c @ (' ' | '\t' | '\r')) => {
                    pending.push(c);
                    self.next();
                    continue;
                }
                Some('"') => {
                    text.push_str(&pending);
                    text.push_str(&self.quoted("value")?);
                }
                Some('\\') => {
                    text.push_str(&pending);
                    text.extend(self.escape()?);
                }
                Some(c) => {
                    text.push_str(&pending);
                    text.push(c);
                    self.next();
                }
            }
            pending.clear();
        }
        self.line_end("the value")?;
        Ok(text)
    }
}

/// Reads a whole file.
pub(crate) fn parse(text: &str) -> Result<Ini, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut scan = Scanner { rest: text.chars().peekable(), line: 1, column: 1 };
    let mut ini = Ini::default();
    loop {
        scan.blanks();
        let line = scan.line;
        match scan.peek() {
            None => return Ok(ini),
            Some('\n') => {
                scan.next();
            }
            Some(';' | '#') => scan.comment(),
            Some('[') => {
                let section = scan.header()?;
                ini.sections.push((section, line));
            }
            Some(_) => {
                let Some((section, _)) = ini.sections.last() else {
                    return scan.fail("expected a section header such as [default] before the first key");
                };
                let section = section.clone();
                let key = scan.name("a key, a section header or a comment")?;
                scan.blanks();
                let value = if scan.peek() == Some('=') {
                    scan.next();
                    Some(scan.value()?)
                } else {
                    scan.line_end("the key; write key = value")?;
                    None
                };
                ini.entries.push(Entry { section, key, value, line });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, Option<String>, usize)> {
        let ini = parse(text).unwrap();
        ini.entries.into_iter().map(|e| (format!("{}.{}", e.section, e.key), e.value, e.line)).collect()
    }

    #[test]
    fn the_dialect() {
        let text = "\u{feff}; comment\r\n# another\n\n[default] ; here\nmtu=1400\r\n  Cluster-Subnets = 10.0.0.0/14/23 , fd00::/48 # two\n\
            quoted = \"a;b\\\"#\"  tail\nflag\nempty =\nlong = one \\\ntwo\n[other \"sub\"]\nkey = x\ty\n[default]\nlast=1";
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(
            values(text),
            [
                ("default.mtu".into(), some("1400"), 5),
                ("default.Cluster-Subnets".into(), some("10.0.0.0/14/23 , fd00::/48"), 6),
                ("default.quoted".into(), some("a;b\"#  tail"), 7),
                ("default.flag".into(), None, 8),
                ("default.empty".into(), some(""), 9),
                ("default.long".into(), some("one two"), 10),
                ("other \"sub\".key".into(), some("x\ty"), 13),
                ("default.last".into(), some("1"), 15),
            ]
        );
    }

    #[test]
    fn errors_name_the_place() {
        for (text, line, column, part) in [
            ("mtu=1", 1, 1, "section header"),
            ("[default\nmtu=1", 1, 9, "expected ']'"),
            ("[]", 1, 2, "expected a section name, found ']'"),
            ("[default]\n1mtu=1", 2, 1, "expected a key"),
            ("[default]\nmtu 1400", 2, 5, "unexpected '1'"),
            ("[default]\nname = \"open\n", 2, 8, "not closed"),
            ("[default]\nname = a\\qb", 2, 10, "unknown escape"),
            ("[default] junk", 1, 11, "unexpected 'j'"),
            ("[", 1, 2, "the end of the file"),
            ("[a]\nk = \\", 2, 6, "unknown escape"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{text:?}: {}", error.reason);
            assert!(error.reason.contains(part), "{text:?}: {}", error.reason);
        }
    }
}
