//! Names that recur in thousands of endpoints, kept once.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Shared texts: names of nodes, zones and ports.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeSet<Arc<str>>,
    /// How many there were when unused ones were last dropped.
    swept: usize,
}

impl Names {
    /// The shared form of `text`.
    pub(crate) fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        if self.known.len() >= 2 * self.swept.max(64) {
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.swept = self.known.len();
        }
        let name: Arc<str> = text.into();
        self.known.insert(name.clone());
        name
    }
}
