//! The rules of an election on a Lease, without clock or I/O.
//!
//! Another's claim is judged by when *we* saw its record change, never by comparing its timestamps with our
//! clock, so skewed clocks cannot make two leaders. Our own claim counts from before the write that renewed it
//! was sent.

use std::time::Duration;

use crate::{Class, ElectionSettings, Lease, LeaseSpec};

/// Where we stand in an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Not leading.
    Standby {
        /// The holder as last seen.
        holder: Option<String>,
    },
    /// Leading.
    Leader,
}

/// What the driver should do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// The Lease does not exist: create it with us as holder.
    Create,
    /// Write us as holder, provided the Lease still has this resource version.
    Write { version: String, take: bool },
    /// Nothing before this time, unless the Lease changes.
    Wait(Option<Duration>),
}

#[derive(Debug)]
pub(crate) struct Rules {
    settings: ElectionSettings,
    standing: Standing,
    /// The Lease as last seen; `None`: known not to exist. Outer `None`: not looked yet.
    seen: Option<Option<Lease>>,
    /// When `seen` last changed in a field of the claim.
    changed: Duration,
    renewed: Duration,
    next_try: Duration,
    retry: Duration,
}

const FIRST_RETRY: Duration = Duration::from_secs(1);

impl Rules {
    pub(crate) fn new(settings: ElectionSettings) -> Self {
        Self {
            settings,
            standing: Standing::Standby { holder: None },
            seen: None,
            changed: Duration::ZERO,
            renewed: Duration::ZERO,
            next_try: Duration::ZERO,
            retry: FIRST_RETRY,
        }
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The Lease was seen (`None`: it does not exist). All times are on one monotonic clock.
    pub(crate) fn observe(&mut self, lease: Option<Lease>, now: Duration) {
        if let (Some(Some(old)), Some(new)) = (&self.seen, &lease)
            && older(new, old)
        {
            return;
        }
        let claim = |lease: &Option<Lease>| lease.as_ref().map(|lease| lease.spec.clone());
        if self.seen.as_ref().map(&claim) != Some(claim(&lease)) {
            self.changed = now;
            if self.standing != Standing::Leader {
                self.next_try = now;
            }
        }
        let holder = holder(&lease);
        self.seen = Some(lease);
        if self.standing == Standing::Leader && holder.as_deref() == Some(&self.settings.identity) {
            return;
        }
        // deposed, or the Lease was deleted under us: either way the claim is not ours any more
        self.standing = Standing::Standby { holder };
    }

    /// What to do at `now`. Also notices that leadership ran out.
    pub(crate) fn next(&mut self, now: Duration) -> Action {
        if self.standing == Standing::Leader {
            let deadline = self.renewed + self.settings.renew_deadline;
            if now < deadline {
                if now < self.next_try {
                    return Action::Wait(Some(self.next_try.min(deadline)));
                }
                return self.write(false);
            }
            self.standing = Standing::Standby { holder: self.seen.as_ref().and_then(holder) };
        }
        let free_at = match &self.seen {
            None => return Action::Wait(None),
            Some(None) => self.next_try,
            Some(Some(lease)) => match lease.spec.holder_identity.as_deref() {
                None | Some("") => self.next_try,
                // ours from before a restart, or after a renewal deadline missed
                Some(holder) if holder == self.settings.identity => self.next_try,
                Some(_) => {
                    let duration = lease.spec.lease_duration_seconds.map(Duration::from_secs);
                    (self.changed + duration.unwrap_or(self.settings.lease_duration)).max(self.next_try)
                }
            },
        };
        if now < free_at {
            return Action::Wait(Some(free_at));
        }
        self.write(true)
    }

    /// What to do at `now` while a write is under way: only wait, and step down in time.
    pub(crate) fn next_while_writing(&mut self, now: Duration) -> Action {
        if self.standing != Standing::Leader {
            return Action::Wait(None);
        }
        let deadline = self.renewed + self.settings.renew_deadline;
        if now < deadline {
            return Action::Wait(Some(deadline));
        }
        self.standing = Standing::Standby { holder: self.seen.as_ref().and_then(holder) };
        Action::Wait(None)
    }

    fn write(&self, take: bool) -> Action {
        match &self.seen {
            Some(Some(lease)) => Action::Write { version: lease.metadata.resource_version.clone(), take },
            _ => Action::Create,
        }
    }

    /// A write with us as holder succeeded; it was sent at `sent`.
    pub(crate) fn written(&mut self, lease: Lease, sent: Duration, now: Duration) {
        self.standing = Standing::Leader;
        self.renewed = sent;
        self.next_try = sent + self.settings.retry_period;
        self.retry = FIRST_RETRY;
        self.observe(Some(lease), now);
    }

    /// A write failed. After a conflict the watch will show why.
    pub(crate) fn failed(&mut self, class: Class, now: Duration) {
        self.next_try = now + self.retry.min(self.settings.retry_period);
        self.retry = (self.retry * 2).min(self.settings.retry_period);
        if class == Class::NotFound {
            self.observe(None, now);
        }
    }

    /// The claim to write.
    pub(crate) fn claim(&self, take: bool, wall_time: &str) -> LeaseSpec {
        let old = self.seen.clone().flatten().map(|lease| lease.spec).unwrap_or_default();
        let same_holder = old.holder_identity.as_deref() == Some(&self.settings.identity);
        let acquired =
            old.acquire_time.filter(|_| same_holder && !take).unwrap_or_else(|| wall_time.to_string());
        let transitions = old.lease_transitions.unwrap_or(0) + u64::from(!same_holder && self.seen_exists());
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: Some(self.settings.lease_duration.as_secs().max(1)),
            acquire_time: Some(acquired),
            renew_time: Some(wall_time.to_string()),
            lease_transitions: Some(transitions),
        }
    }

    /// Gives up leadership; the version to write the resignation against, if there is anything to resign from.
    pub(crate) fn resign(&mut self) -> Option<String> {
        let was = std::mem::replace(&mut self.standing, Standing::Standby { holder: None });
        let lease = self.seen.as_ref()?.as_ref()?;
        (was == Standing::Leader).then(|| lease.metadata.resource_version.clone())
    }

    fn seen_exists(&self) -> bool {
        matches!(self.seen, Some(Some(_)))
    }
}

fn holder(lease: &Option<Lease>) -> Option<String> {
    lease.as_ref().and_then(|lease| lease.spec.holder_identity.clone()).filter(|holder| !holder.is_empty())
}

/// Whether `new` is a late echo from before `old`. Versions are numbers on every server there is; where they are
/// not, the latest word counts.
fn older(new: &Lease, old: &Lease) -> bool {
    let version = |lease: &Lease| lease.metadata.resource_version.parse::<u64>().ok();
    new.metadata.uid == old.metadata.uid
        && matches!((version(new), version(old)), (Some(new), Some(old)) if new < old)
}

#[cfg(test)]
mod tests;
