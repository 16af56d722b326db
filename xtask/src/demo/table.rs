//! Text in columns.

use std::fmt;

/// Rows under a heading; columns as wide as their widest cell.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

// === impl Table ===

impl Table {
    pub(super) fn new<S: AsRef<str>>(heading: &[S]) -> Self {
        Self { rows: vec![heading.iter().map(|cell| cell.as_ref().to_owned()).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |at: usize| {
            self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let line: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["POD", "IP"]);
        table.row(["a-long-name".to_owned(), "10.0.0.1".to_owned()]);
        table.row(["b".to_owned(), "10.0.0.2".to_owned()]);
        let text = table.to_string();
        let starts: Vec<Option<usize>> =
            text.lines().map(|line| line.find("10.").or_else(|| line.find("IP"))).collect();
        assert_eq!(starts, [Some(13); 3], "{text}");
    }
}
