//! A pool of small numbers, handed out lowest first.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Ids of one range (node ids, tunnel keys). The lowest free one is handed out.
#[derive(Debug, Clone)]
pub struct IdPool {
    range: RangeInclusive<u32>,
    taken: BTreeSet<u32>,
}

impl IdPool {
    /// A pool with all of `range` free.
    pub fn new(range: RangeInclusive<u32>) -> IdPool {
        IdPool { range, taken: BTreeSet::new() }
    }

    /// Takes the lowest free id; `None` when all are taken.
    pub fn allocate(&mut self) -> Option<u32> {
        let mut candidate = *self.range.start();
        for &taken in &self.taken {
            if taken != candidate {
                break;
            }
            candidate += 1;
        }
        (candidate <= *self.range.end()).then(|| {
            self.taken.insert(candidate);
            candidate
        })
    }

    /// Takes one particular id; `false` when it is taken already or outside the range.
    pub fn reserve(&mut self, id: u32) -> bool {
        self.range.contains(&id) && self.taken.insert(id)
    }

    /// Gives an id back; `false` when it was not taken.
    pub fn release(&mut self, id: u32) -> bool {
        self.taken.remove(&id)
    }

    /// Whether the id is taken.
    pub fn contains(&self, id: u32) -> bool {
        self.taken.contains(&id)
    }

    /// How many ids are taken.
    pub fn used(&self) -> usize {
        self.taken.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_id_first() {
        let mut pool = IdPool::new(2..=4);
        assert!(pool.reserve(3));
        assert!(!pool.reserve(3) && !pool.reserve(1) && !pool.reserve(5));
        assert_eq!([pool.allocate(), pool.allocate(), pool.allocate()], [Some(2), Some(4), None]);
        assert!(pool.release(3));
        assert_eq!(pool.allocate(), Some(3));
    }
}
