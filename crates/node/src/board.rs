//! What the CNI server must know about each local pod, with a wake-up per pod.
//!
//! Written by whoever follows pods on this node (the network controller puts an allocation here before the API
//! server echoes it; a node-only process feeds it from its own watch). Read by the CNI server. Waiting for one pod
//! is woken by changes of that pod only.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime},
};

use kapi::{PodKey, annotations::PodNetwork};
use tokio::sync::{broadcast, watch};

/// Room for changes a slow follower has not read; beyond it the follower reads the whole board.
const CHANGE_BACKLOG: usize = 1024;

/// Bandwidth annotations as the user wrote them; judged at CNI ADD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BandwidthAnnotations {
    /// `kubernetes.io/ingress-bandwidth`: towards the pod, quantity in bit/s.
    pub ingress: Option<String>,
    /// `kubernetes.io/egress-bandwidth`: from the pod, quantity in bit/s.
    pub egress: Option<String>,
    /// `ovn.kubernetes.io/ingress_rate`: towards the pod, Mbit/s.
    pub ingress_rate: Option<String>,
    /// `ovn.kubernetes.io/egress_rate`: from the pod, Mbit/s.
    pub egress_rate: Option<String>,
}

/// When a pod passed the stages of its way, as far as this process saw them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// The scheduler bound the pod, by the API's clock.
    pub scheduled: Option<SystemTime>,
    /// The pod's binding to this node was seen.
    pub seen: Option<Instant>,
    /// Addresses were chosen.
    pub allocated: Option<Instant>,
    /// The logical port was committed to the Northbound database.
    pub committed: Option<Instant>,
    /// The annotation was written.
    pub annotated: Option<Instant>,
}

/// The network state of one local pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Namespace and name.
    pub key: PodKey,
    /// UID of the API object.
    pub uid: String,
    /// Node the pod is bound to.
    pub node: String,
    /// The pod uses its node's network.
    pub host_network: bool,
    /// A static (mirror) pod: the runtime knows it by another UID.
    pub static_pod: bool,
    /// The `default` entry of `k8s.ovn.org/pod-networks`, once there is one.
    pub annotation: Option<Arc<PodNetwork>>,
    /// Bandwidth annotations.
    pub bandwidth: BandwidthAnnotations,
    /// Why there is no annotation yet, in the user's words (pool exhausted, node without subnet …).
    pub waiting_reason: Option<String>,
    /// Stages passed.
    pub stages: StageTimes,
}

/// Shared table of local pods. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PodBoard {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pods: Mutex<BTreeMap<PodKey, watch::Sender<Option<Arc<PodView>>>>>,
    changes: broadcast::Sender<PodKey>,
    problem: watch::Sender<Option<String>>,
}

// === impl PodView ===

impl PodView {
    /// The view of an API object without its addresses: what a watcher knows before anything is allocated.
    pub fn of(pod: &kapi::Pod) -> PodView {
        let text = |key: &str| pod.metadata.annotation(key).map(str::to_owned);
        let (annotation, waiting_reason) =
            match kapi::annotations::parse_pod_networks(&pod.metadata, kapi::annotations::DEFAULT_NETWORK) {
                Ok(found) => (found.map(Arc::new), None),
                Err(e) => (None, Some(e.to_string())),
            };
        PodView {
            key: pod.pod_key(),
            uid: pod.metadata.uid.clone(),
            node: pod.spec.node_name.clone(),
            host_network: pod.spec.host_network,
            static_pod: pod.is_static(),
            annotation,
            bandwidth: BandwidthAnnotations {
                ingress: text("kubernetes.io/ingress-bandwidth"),
                egress: text("kubernetes.io/egress-bandwidth"),
                ingress_rate: text("ovn.kubernetes.io/ingress_rate"),
                egress_rate: text("ovn.kubernetes.io/egress_rate"),
            },
            waiting_reason,
            stages: StageTimes {
                scheduled: pod.status.scheduled_at.as_deref().and_then(kapi::parse_time),
                ..StageTimes::default()
            },
        }
    }
}

// === impl PodBoard ===

impl PodBoard {
    /// An empty board that has not heard from the API server yet.
    pub fn new() -> PodBoard {
        PodBoard {
            inner: Arc::new(Inner {
                pods: Mutex::default(),
                changes: broadcast::Sender::new(CHANGE_BACKLOG),
                problem: watch::Sender::new(Some(
                    "the pods of this node have not been listed yet".to_owned(),
                )),
            }),
        }
    }

    /// Puts or replaces a pod and wakes those who wait for it.
    pub fn apply(&self, view: PodView) {
        let key = view.key.clone();
        let mut changed = false;
        self.pods().entry(key.clone()).or_insert_with(|| watch::Sender::new(None)).send_if_modified(|slot| {
            changed = slot.as_deref() != Some(&view);
            if changed {
                *slot = Some(Arc::new(view));
            }
            changed
        });
        if changed {
            let _ = self.inner.changes.send(key);
        }
    }

    /// Takes over what the API says of a pod. Of the same pod (by UID) the board keeps what it heard before the API
    /// echoed it: the addresses decided, why it waits, and the stages it passed. `seen`: when the pod was first seen.
    pub fn refresh(&self, mut view: PodView, seen: Option<Instant>) {
        if let Some(known) = self.get(&view.key).filter(|known| known.uid == view.uid) {
            if view.annotation.is_none() {
                view.annotation = known.annotation.clone();
                view.waiting_reason = view.waiting_reason.or_else(|| known.waiting_reason.clone());
            }
            let scheduled = view.stages.scheduled.or(known.stages.scheduled);
            view.stages = StageTimes { scheduled, ..known.stages };
        }
        view.stages.seen = view.stages.seen.or(seen);
        self.apply(view);
    }

    /// Changes what the board knows of the pod of this UID; nothing if it knows none.
    pub fn amend(&self, key: &PodKey, uid: &str, change: impl FnOnce(&mut PodView)) {
        if let Some(known) = self.get(key).filter(|known| known.uid == uid) {
            let mut view = PodView::clone(&known);
            change(&mut view);
            self.apply(view);
        }
    }

    /// Forgets a pod and wakes those who wait for it.
    pub fn remove(&self, key: &PodKey) {
        let mut pods = self.pods();
        let Some(slot) = pods.get(key) else { return };
        let had = slot.send_replace(None).is_some();
        if slot.receiver_count() == 0 {
            pods.remove(key);
        }
        drop(pods);
        if had {
            let _ = self.inner.changes.send(key.clone());
        }
    }

    /// The pod as known now.
    pub fn get(&self, key: &PodKey) -> Option<Arc<PodView>> {
        self.pods().get(key).and_then(|slot| slot.borrow().clone())
    }

    /// All pods, by key.
    pub fn all(&self) -> Vec<Arc<PodView>> {
        self.pods().values().filter_map(|slot| slot.borrow().clone()).collect()
    }

    /// Waits until `check` gives a result. It is asked at once and after every change of that pod (`None`: the
    /// board does not know the pod). Dropping the future ends the wait.
    pub async fn wait<R>(&self, key: &PodKey, mut check: impl FnMut(Option<&PodView>) -> Option<R>) -> R {
        let waiter = Waiter { board: self, key, changes: self.subscribe(key) };
        let mut changes = waiter.changes.clone();
        loop {
            let view = changes.borrow_and_update().clone();
            if let Some(result) = check(view.as_deref()) {
                return result;
            }
            if changes.changed().await.is_err() {
                // The slot was dropped between removal and subscription; take the new one.
                changes = self.subscribe(key);
            }
        }
    }

    /// Keys of pods that change from now on. A lagged receiver must look at [`PodBoard::all`].
    pub fn changes(&self) -> broadcast::Receiver<PodKey> {
        self.inner.changes.subscribe()
    }

    /// Says why the board may be out of date (API server unreachable), or that it is current.
    pub fn set_problem(&self, problem: Option<String>) {
        self.inner.problem.send_if_modified(|old| {
            let changed = *old != problem;
            *old = problem;
            changed
        });
    }

    /// Why the board may be out of date; none if it is current.
    pub fn problem(&self) -> Option<String> {
        self.inner.problem.borrow().clone()
    }

    /// Waits until the board is current.
    pub async fn current(&self) {
        let _ = self.inner.problem.subscribe().wait_for(Option::is_none).await;
    }

    fn subscribe(&self, key: &PodKey) -> watch::Receiver<Option<Arc<PodView>>> {
        self.pods().entry(key.clone()).or_insert_with(|| watch::Sender::new(None)).subscribe()
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<PodKey, watch::Sender<Option<Arc<PodView>>>>> {
        self.inner.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for PodBoard {
    fn default() -> Self {
        PodBoard::new()
    }
}

/// Drops the slot of a pod nobody knows and nobody waits for any more.
struct Waiter<'a> {
    board: &'a PodBoard,
    key: &'a PodKey,
    changes: watch::Receiver<Option<Arc<PodView>>>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut pods = self.board.pods();
        if let Some(slot) = pods.get(self.key)
            && slot.borrow().is_none()
            && slot.receiver_count() <= 1
            && self.changes.same_channel(&slot.subscribe())
        {
            pods.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(name: &str, uid: &str) -> PodView {
        let mut pod = kapi::Pod::default();
        pod.metadata.namespace = "ns".into();
        pod.metadata.name = name.into();
        pod.metadata.uid = uid.into();
        PodView::of(&pod)
    }

    #[tokio::test]
    async fn a_waiter_is_woken_by_its_own_pod_only() {
        let board = PodBoard::new();
        let key = PodKey::new("ns", "a");
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let task = tokio::spawn({
            let (board, key, asked) = (board.clone(), key.clone(), asked.clone());
            async move {
                board
                    .wait(&key, |v| {
                        asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        v.filter(|v| v.uid == "2").map(|v| v.uid.clone())
                    })
                    .await
            }
        });
        tokio::task::yield_now().await;
        for i in 0..100 {
            board.apply(view("b", &i.to_string()));
            tokio::task::yield_now().await;
        }
        board.apply(view("a", "2"));
        assert_eq!(task.await.unwrap(), "2");
        assert!(asked.load(std::sync::atomic::Ordering::SeqCst) <= 2);
        board.remove(&key);
        board.remove(&PodKey::new("ns", "b"));
        assert!(board.pods().is_empty(), "nothing is kept for pods that are gone");
    }

    #[tokio::test]
    async fn an_abandoned_wait_leaves_no_slot() {
        let board = PodBoard::new();
        let key = PodKey::new("ns", "a");
        {
            let wait = board.wait(&key, |v| v.map(|_| ()));
            tokio::pin!(wait);
            assert!(futures::poll!(&mut wait).is_pending());
        }
        assert!(board.pods().is_empty());
    }
}
