//! One request of a pod's interface at a time, and the newest sandbox wins.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kapi::PodKey;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

/// What is serialised: an interface of a pod.
pub(crate) type TurnKey = (PodKey, String);

/// Requests that run or wait, by interface.
#[derive(Debug, Default, Clone)]
pub(crate) struct Turns {
    map: Arc<Mutex<BTreeMap<TurnKey, Lane>>>,
}

#[derive(Debug, Default)]
struct Lane {
    lock: Arc<tokio::sync::Mutex<()>>,
    adds: Vec<PendingAdd>,
    users: usize,
}

#[derive(Debug)]
struct PendingAdd {
    id: u64,
    sandbox: String,
    since: Duration,
    cancel: CancellationToken,
}

/// A place in the lane; dropping it leaves the lane.
#[derive(Debug)]
pub(crate) struct Place {
    turns: Turns,
    key: TurnKey,
    id: Option<u64>,
    lock: Arc<tokio::sync::Mutex<()>>,
    guard: Option<OwnedMutexGuard<()>>,
}

/// A newer sandbox of the same pod is being attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outdated {
    pub(crate) newer: String,
}

// === impl Turns ===

impl Turns {
    /// Queues an ADD. Pending ADDs of older sandboxes, and an earlier attempt of the same one, are cancelled; if a
    /// newer sandbox is pending this one is refused.
    pub(crate) fn add(
        &self,
        key: TurnKey,
        sandbox: &str,
        since: Duration,
        cancel: &CancellationToken,
    ) -> Result<Place, Outdated> {
        let mut map = self.lock();
        let lane = map.entry(key.clone()).or_default();
        if let Some(newer) = lane.adds.iter().find(|a| a.sandbox != sandbox && a.since > since) {
            return Err(Outdated { newer: newer.sandbox.clone() });
        }
        for older in &lane.adds {
            older.cancel.cancel();
        }
        let id = lane.adds.iter().map(|a| a.id).max().unwrap_or(0) + 1;
        lane.adds.push(PendingAdd { id, sandbox: sandbox.to_owned(), since, cancel: cancel.clone() });
        lane.users += 1;
        let lock = lane.lock.clone();
        drop(map);
        Ok(Place { turns: self.clone(), key, id: Some(id), lock, guard: None })
    }

    /// Queues a DEL. A pending ADD of the same sandbox is cancelled: its caller has given up.
    pub(crate) fn del(&self, key: TurnKey, sandbox: &str) -> Place {
        let mut map = self.lock();
        let lane = map.entry(key.clone()).or_default();
        for add in lane.adds.iter().filter(|a| a.sandbox == sandbox) {
            add.cancel.cancel();
        }
        lane.users += 1;
        let lock = lane.lock.clone();
        drop(map);
        Place { turns: self.clone(), key, id: None, lock, guard: None }
    }

    /// Whether an ADD of that sandbox is running or waiting.
    pub(crate) fn has_sandbox(&self, sandbox: &str) -> bool {
        self.lock().values().any(|lane| lane.adds.iter().any(|a| a.sandbox == sandbox))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TurnKey, Lane>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Place ===

impl Place {
    /// Waits for those before.
    pub(crate) async fn turn(&mut self) {
        if self.guard.is_none() {
            self.guard = Some(self.lock.clone().lock_owned().await);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.guard = None;
        let mut map = self.turns.lock();
        if let Some(lane) = map.get_mut(&self.key) {
            lane.adds.retain(|a| Some(a.id) != self.id);
            lane.users -= 1;
            if lane.users == 0 {
                map.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TurnKey {
        (PodKey::new("ns", "pod"), "eth0".to_owned())
    }

    #[tokio::test]
    async fn the_newest_sandbox_wins_and_lanes_do_not_stay() {
        let turns = Turns::default();
        let token = CancellationToken::new;
        let (t1, t2, t3) = (token(), token(), token());
        let at = Duration::from_secs;
        let mut one = turns.add(key(), "s1", at(1), &t1).unwrap();
        one.turn().await;
        let mut two = turns.add(key(), "s2", at(2), &t2).unwrap();
        assert!(t1.is_cancelled() && !t2.is_cancelled());
        let refused = turns.add(key(), "s1", at(1), &t3).unwrap_err();
        assert_eq!(refused.newer, "s2");
        assert!(
            futures::poll!(std::pin::pin!(two.turn())).is_pending(),
            "the first one still holds the turn"
        );
        drop(one);
        two.turn().await;
        let del_old = turns.del(key(), "s1");
        assert!(!t2.is_cancelled(), "a DEL of another sandbox cancels nothing");
        let del_own = turns.del(key(), "s2");
        assert!(t2.is_cancelled());
        drop((two, del_old, del_own));
        assert!(turns.lock().is_empty());
    }
}
