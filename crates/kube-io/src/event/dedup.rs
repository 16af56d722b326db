//! Which reports become a new Event, which count up an old one, and which are too many.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Report, Severity};
use crate::ObjectRef;

/// Reports on one object that pass at once.
const BURST: f64 = 25.0;
/// After the burst, one more passes per this many seconds.
const REFILL_SECONDS: f64 = 300.0;
/// Bound on what is remembered, in different reports and in objects.
const REMEMBERED: usize = 4096;
/// A report repeated after this time is news again; servers keep Events for an hour.
const NEWS_AFTER: Duration = Duration::from_secs(3000);

/// What to do with a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Write a new Event.
    Create,
    /// Raise the count of an Event written before.
    Repeat { name: String, count: u32 },
    /// Too many on this object.
    Drop,
}

type Key = (ObjectRef, Severity, &'static str, String);

#[derive(Default)]
pub(super) struct Dedup {
    written: BTreeMap<Key, Written>,
    objects: BTreeMap<ObjectRef, Bucket>,
}

struct Written {
    name: String,
    count: u32,
    last: Duration,
}

struct Bucket {
    tokens: f64,
    last: Duration,
}

impl Dedup {
    /// `now` is time since any fixed start.
    pub(super) fn decide(&mut self, report: &Report, now: Duration) -> Decision {
        if !self.spend(&report.object, now) {
            return Decision::Drop;
        }
        match self.written.get_mut(&key(report)) {
            Some(written) if now.saturating_sub(written.last) < NEWS_AFTER => {
                written.count += 1;
                written.last = now;
                Decision::Repeat { name: written.name.clone(), count: written.count }
            }
            _ => Decision::Create,
        }
    }

    /// Remembers the name of an Event that was created for the report.
    pub(super) fn created(&mut self, report: &Report, name: String, now: Duration) {
        if self.written.len() >= REMEMBERED {
            let oldest =
                self.written.iter().min_by_key(|(_, written)| written.last).map(|(key, _)| key.clone());
            oldest.map(|key| self.written.remove(&key));
        }
        self.written.insert(key(report), Written { name, count: 1, last: now });
    }

    fn spend(&mut self, object: &ObjectRef, now: Duration) -> bool {
        if self.objects.len() >= REMEMBERED && !self.objects.contains_key(object) {
            let oldest =
                self.objects.iter().min_by_key(|(_, bucket)| bucket.last).map(|(object, _)| object.clone());
            oldest.map(|object| self.objects.remove(&object));
        }
        let bucket = self.objects.entry(object.clone()).or_insert(Bucket { tokens: BURST, last: now });
        let refill = now.saturating_sub(bucket.last).as_secs_f64() / REFILL_SECONDS;
        bucket.tokens = (bucket.tokens + refill).min(BURST);
        bucket.last = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

fn key(report: &Report) -> Key {
    (report.object.clone(), report.severity, report.reason, report.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, message: &str) -> Report {
        let object = ObjectRef {
            api_version: "v1".into(),
            kind: "Node".into(),
            namespace: String::new(),
            name: name.into(),
            uid: "u".into(),
        };
        Report { object, severity: Severity::Warning, reason: "R", message: message.into() }
    }

    #[test]
    fn repetitions_count_up_and_become_news_after_an_hour() {
        let mut dedup = Dedup::default();
        let first = report("a", "m");
        let at = Duration::from_secs;
        assert_eq!(dedup.decide(&first, at(0)), Decision::Create);
        dedup.created(&first, "a.1".into(), at(0));
        assert_eq!(dedup.decide(&first, at(1)), Decision::Repeat { name: "a.1".into(), count: 2 });
        assert_eq!(dedup.decide(&report("a", "other"), at(1)), Decision::Create);
        assert_eq!(dedup.decide(&first, at(4000)), Decision::Create);
    }

    #[test]
    fn one_noisy_object_is_silenced_and_the_others_are_not() {
        let mut dedup = Dedup::default();
        let now = Duration::from_secs(5);
        let passed = (0..40)
            .filter(|i| dedup.decide(&report("noisy", &format!("m{i}")), now) != Decision::Drop)
            .count();
        assert_eq!(passed, 25);
        assert_eq!(dedup.decide(&report("quiet", "m"), now), Decision::Create);
        assert_eq!(dedup.decide(&report("noisy", "later"), now + Duration::from_secs(301)), Decision::Create);
    }

    #[test]
    fn memory_is_bounded() {
        let mut dedup = Dedup::default();
        for i in 0..(REMEMBERED as u64 + 100) {
            let report = report(&format!("n{i}"), "m");
            let now = Duration::from_secs(i);
            if dedup.decide(&report, now) == Decision::Create {
                dedup.created(&report, format!("e{i}"), now);
            }
        }
        assert_eq!((dedup.written.len(), dedup.objects.len()), (REMEMBERED, REMEMBERED));
    }
}
