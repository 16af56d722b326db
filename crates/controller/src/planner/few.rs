//! Sets that mostly have one member.

/// A sorted set kept in one exact allocation: thousands of rows have one owner, one name and one place where they are
/// listed, and a tree's node would be ten times as large.
#[derive(Debug)]
pub(super) struct Few<T>(Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Few(Vec::new())
    }
}

impl<T: Ord> Few<T> {
    pub(super) fn insert(&mut self, item: T) {
        if let Err(at) = self.0.binary_search(&item) {
            // Exactly one more while there are few; in large ones places are left, so that filling them stays cheap.
            if self.0.len() < 8 {
                self.0.reserve_exact(1);
            }
            self.0.insert(at, item);
        }
    }

    pub(super) fn remove(&mut self, item: &T) {
        if let Ok(at) = self.0.binary_search(item) {
            self.0.remove(at);
        }
    }

    pub(super) fn contains(&self, item: &T) -> bool {
        self.0.binary_search(item).is_ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.0.first()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_sorted_set() {
        let mut few = Few::default();
        for item in [5, 1, 3, 1, 9, 5, 7, 2, 4, 6, 8, 0] {
            few.insert(item);
        }
        assert!(few.iter().copied().eq(0..10));
        few.remove(&0);
        few.remove(&42);
        assert!(few.first() == Some(&1) && few.contains(&9) && !few.contains(&0));
    }
}
