//! Where in their tier administrators' policies stand.

use std::collections::BTreeMap;

/// Priority of the first rule of a policy of priority 0; the contract with the reference.
const FIRST: i64 = 30_000;
/// Rules between two priorities; the contract with the reference.
const CONTRACT_STEP: i64 = 100;
/// The first priority the reference does not know. What follows shares the numbers below 20001.
const CONTRACT_END: u32 = 100;
/// Rules that fit between two of the later priorities before others have to make room.
const STEP: i64 = 22;
/// Highest number for the later priorities.
const LATER_FIRST: i64 = 20_000;

/// The place of each priority in use among the rules of the admin tier.
///
/// OVN's priorities end at 32767, so 1001 policies with 100 rules each do not fit. Priorities 0 to 99 stand where the
/// reference puts them; later ones have 22 places each and push the following ones down, or are themselves pushed
/// up, where a policy has more rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    later: BTreeMap<u32, i64>,
}

impl Layout {
    /// The layout for these priorities with the number of rules each needs.
    pub(crate) fn new(widths: &BTreeMap<u32, usize>) -> Layout {
        let widths: Vec<(u32, i64)> = widths
            .iter()
            .filter(|(priority, _)| **priority >= CONTRACT_END)
            .map(|(priority, width)| (*priority, i64::try_from(*width).unwrap_or(0).max(1)))
            .collect();
        let mut places = Vec::new();
        let mut end = LATER_FIRST + 1;
        for (priority, width) in &widths {
            let place = (LATER_FIRST - STEP * i64::from(priority - CONTRACT_END)).min(end - 1);
            places.push(place);
            end = place - width + 1;
        }
        // What sank below the last number rises again, and lifts those before it.
        let mut floor = 0;
        for (place, (_, width)) in places.iter_mut().zip(&widths).rev() {
            *place = (*place).max(floor + width - 1);
            floor = *place + 1;
        }
        let later = widths.iter().zip(places).map(|((priority, _), place)| (*priority, place)).collect();
        Layout { later }
    }

    /// The number of a policy's first rule in the admin tier; the others follow downwards. None where the tier has no
    /// room.
    pub fn admin(&self, priority: u32) -> Option<i64> {
        if priority < CONTRACT_END {
            return Some(FIRST - CONTRACT_STEP * i64::from(priority));
        }
        self.later.get(&priority).copied().filter(|place| *place <= LATER_FIRST)
    }

    /// Priorities whose place differs from `other`'s.
    pub(crate) fn moved<'a>(&'a self, other: &'a Layout) -> impl Iterator<Item = u32> + 'a {
        self.later.keys().copied().filter(|priority| self.later.get(priority) != other.later.get(priority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lower priorities come first, whatever their policies' sizes, as long as all rules fit.
    #[test]
    fn order_holds_for_every_mixture() {
        let mut seed = 7u64;
        let mut random = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        for round in 0..300 {
            let mut widths = BTreeMap::new();
            let mut room = 19_900;
            for priority in 0..=1000 {
                let width = random(if round % 3 == 0 { 100 } else { 30 }) as usize + 1;
                let used = priority < 100 || width < room;
                if used && random(4) <= round % 4 {
                    room -= if priority < 100 { 0 } else { width };
                    widths.insert(priority, width);
                }
            }
            let layout = Layout::new(&widths);
            let mut floor = i64::MAX;
            for (priority, width) in &widths {
                let first = layout.admin(*priority).unwrap_or_else(|| panic!("no room for {priority}"));
                let last = first - *width as i64 + 1;
                assert!(first < floor && last >= 0, "round {round}, priority {priority}: {first}..{last}");
                floor = last;
            }
        }
    }

    #[test]
    fn small_policies_do_not_move_others() {
        let few = Layout::new(&BTreeMap::from([(100, 22), (500, 3), (1000, 100)]));
        let more = Layout::new(&BTreeMap::from([(100, 22), (101, 22), (499, 20), (500, 3), (1000, 100)]));
        for priority in [100, 500, 1000] {
            assert_eq!(few.admin(priority), more.admin(priority));
        }
        assert_eq!(few.admin(34), Some(26_600));
    }

    #[test]
    fn what_does_not_fit_has_no_place() {
        let widths = (100..=400).map(|priority| (priority, 100)).collect();
        assert_eq!(Layout::new(&widths).admin(100), None);
    }
}
