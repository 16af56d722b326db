//! Columns that fit the terminal.

/// Two columns under headings; the second is wrapped, and begins at the same place in every row.
pub(super) fn two_columns(heads: [&str; 2], rows: &[(String, String)], indent: &str, width: usize) -> String {
    let widest = rows.iter().map(|(first, _)| first.chars().count()).max().unwrap_or(0);
    let room = width.saturating_sub(indent.len() + 3).max(heads[0].len() + heads[1].len());
    let column = widest.min(room / 2).max(heads[0].len());
    let rest = (room - column).max(heads[1].len());
    let mut text = format!("{indent}{:<column$}   {}\n", heads[0], heads[1]);
    for (first, second) in rows {
        let first = wrapped(first, column);
        let second = wrapped(second, rest);
        for at in 0..first.len().max(second.len()) {
            let cell = |lines: &[String]| lines.get(at).cloned().unwrap_or_default();
            let line = format!("{indent}{:<column$}   {}", cell(&first), cell(&second));
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

/// The text in lines no longer than `width`, broken at spaces where it can be.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let length = |line: &String| line.chars().count();
        let last = lines.len() - 1;
        if !lines[last].is_empty() && length(&lines[last]) + 1 + word.chars().count() > width {
            lines.push(String::new());
        } else if !lines[last].is_empty() {
            lines[last].push(' ');
        }
        // A name longer than the line is broken where the line ends.
        for letter in word.chars() {
            if lines.last().is_some_and(|line| length(line) >= width) {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                line.push(letter);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let long = "namespace-with-a-long-name/pod-".repeat(4);
        let rows = vec![("a".to_owned(), "b".to_owned()), (long, "word ".repeat(40))];
        for width in [40, 80, 200] {
            let text = two_columns(["WHO", "WHERE"], &rows, "  ", width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        }
    }

    #[test]
    fn words_stay_whole_where_they_can() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
