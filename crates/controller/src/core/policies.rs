//! What is told about policies: conditions on administrators' policies, warnings about what cannot be used.

use std::collections::BTreeMap;
use std::time::Duration;

use policy::{Kind, Policy, PolicyId};
use world::World;

use crate::io::{Output, PatchError, PolicyCondition};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// What was told about each policy, and what is on its way.
#[derive(Debug, Default)]
pub(super) struct Reports {
    notes: BTreeMap<PolicyId, Note>,
}

#[derive(Debug, Default)]
struct Note {
    uid: String,
    /// The last warning.
    warned: Option<String>,
    /// The condition the object carries, as far as known.
    carried: Option<PolicyCondition>,
    /// The condition it should carry.
    wanted: Option<PolicyCondition>,
    patching: bool,
    retry: Option<(Duration, Duration)>,
}

impl Reports {
    /// A policy object was seen; it carries this condition of ours.
    pub(super) fn seen(&mut self, policy: &Policy, carried: Option<PolicyCondition>, out: &mut Vec<Output>) {
        let note = self.notes.entry(policy.id.clone()).or_default();
        if note.uid != policy.uid {
            *note = Note { uid: policy.uid.clone(), ..Note::default() };
        }
        if !note.patching {
            note.carried = carried;
        }
        let warning = (!policy.problems.is_empty()).then(|| policy.problems.join("; "));
        if note.warned != warning {
            note.warned.clone_from(&warning);
            if let Some(message) = warning {
                out.push(Output::WarnPolicy { id: policy.id.clone(), uid: note.uid.clone(), message });
            }
        }
    }

    /// A policy is gone.
    pub(super) fn gone(&mut self, id: &PolicyId) {
        self.notes.remove(id);
    }

    /// The database holds the policy's rows, or refuses them.
    pub(super) fn settled(
        &mut self,
        world: &World,
        id: &PolicyId,
        refused: Option<&str>,
        out: &mut Vec<Output>,
    ) {
        if id.kind == Kind::NetworkPolicy {
            return;
        }
        let Some(policy) = world.policies().policy(id) else { return };
        let Some(note) = self.notes.get_mut(id) else { return };
        let mut problems = policy.problems.clone();
        problems.extend(refused.map(|error| format!("the Northbound database refuses it: {error}")));
        if policy.tier == policy::Tier::Admin && world.policies().layout().admin(policy.priority).is_none() {
            problems.push(format!(
                "the admin tier has no room for all rules of the policies up to priority {}; use fewer rules or priorities below 100",
                policy.priority
            ));
        }
        let ready = problems.is_empty();
        let message = if ready { READY.to_owned() } else { problems.join("; ") };
        note.wanted = Some(PolicyCondition { ready, message, generation: policy.generation });
        note.send(id, out);
    }

    /// A condition was written, or not.
    pub(super) fn reported(
        &mut self,
        id: &PolicyId,
        uid: &str,
        result: Result<(), PatchError>,
        now: Duration,
        out: &mut Vec<Output>,
    ) {
        let Some(note) = self.notes.get_mut(id).filter(|note| note.uid == uid) else { return };
        note.patching = false;
        match result {
            Ok(()) => note.retry = None,
            Err(PatchError::Gone) => {
                note.retry = None;
                return;
            }
            Err(error) => {
                note.carried = None;
                let delay = note.retry.map_or(FIRST_RETRY, |(_, delay)| (delay * 2).min(LONGEST_RETRY));
                note.retry = Some((now + delay, delay));
                tracing::warn!(policy = %id, %error, "its condition could not be written; trying again");
                return;
            }
        }
        note.send(id, out);
    }

    /// Tries again what is due.
    pub(super) fn tick(&mut self, now: Duration, out: &mut Vec<Output>) {
        for (id, note) in &mut self.notes {
            if !note.patching && note.retry.is_some_and(|(at, _)| at <= now) {
                note.send(id, out);
            }
        }
    }

    /// When the next attempt is due.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.notes
            .values()
            .filter(|note| !note.patching)
            .filter_map(|note| note.retry.map(|(at, _)| at))
            .min()
    }
}

/// What the reference says of a policy that is in place.
const READY: &str = "Setting up OVN DB plumbing was successful";

impl Note {
    fn send(&mut self, id: &PolicyId, out: &mut Vec<Output>) {
        let Some(wanted) = self.wanted.clone() else { return };
        if self.patching || self.carried.as_ref().is_some_and(|carried| carried.says(&wanted)) {
            return;
        }
        self.patching = true;
        self.carried = Some(wanted.clone());
        out.push(Output::Report { id: id.clone(), uid: self.uid.clone(), condition: wanted });
    }
}
