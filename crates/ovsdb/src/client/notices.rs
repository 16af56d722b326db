//! The way of notices from the driver to their receiver.
//!
//! Updates that wait are joined, so the queue is short however slow the receiver is. Whoever receives may
//! make transactions in between: the driver never waits for the receiver to take a single notice. Only when
//! very many rows wait does it stop reading the connection.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::Notice;

/// The receiving end: what [`super::connect`] returns beside the client.
#[derive(Debug)]
pub struct Notices {
    queue: Arc<Queue>,
}

/// What both ends share.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Notice>,
    rows: usize,
    /// The driver has stopped.
    ended: bool,
    /// Nobody receives any more.
    abandoned: bool,
}

// === impl Notices ===

impl Notices {
    pub(super) fn new() -> (Arc<Queue>, Notices) {
        let queue = Arc::new(Queue::default());
        (queue.clone(), Notices { queue })
    }

    /// The next notice; none when the driver has stopped. May be dropped at any time.
    pub async fn recv(&mut self) -> Option<Notice> {
        loop {
            let arrived = self.queue.arrived.notified();
            {
                let mut state = self.queue.lock();
                if let Some(notice) = self.queue.take(&mut state) {
                    return Some(notice);
                }
                if state.ended {
                    return None;
                }
            }
            arrived.await;
        }
    }

    /// The next notice if one waits.
    pub fn try_recv(&mut self) -> Option<Notice> {
        self.queue.take(&mut self.queue.lock())
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.abandoned = true;
        state.waiting.clear();
        state.rows = 0;
        drop(state);
        self.queue.taken.notify_waiters();
        self.queue.taken.notify_one();
    }
}

// === impl Queue ===

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, state: &mut State) -> Option<Notice> {
        let notice = state.waiting.pop_front()?;
        state.rows -= rows(&notice);
        self.taken.notify_one();
        Some(notice)
    }

    /// Puts a notice before the receiver.
    pub(super) fn put(&self, notice: Notice) {
        let mut state = self.lock();
        if state.abandoned {
            return;
        }
        let more = rows(&notice);
        match (state.waiting.back_mut(), notice) {
            (Some(Notice::Update(last) | Notice::Reset(last)), Notice::Update(next))
                if Arc::ptr_eq(&last.schema, &next.schema) =>
            {
                last.rows.extend(next.rows);
            }
            (_, Notice::Reset(update)) => {
                // What came before says nothing about what is now; connection notices stay.
                state.waiting.retain(|n| !matches!(n, Notice::Update(_) | Notice::Reset(_)));
                state.rows = 0;
                state.waiting.push_back(Notice::Reset(update));
            }
            (_, Notice::Down { reason }) => {
                // Only the last state of the connection counts for one who has not followed.
                state.waiting.retain(|n| matches!(n, Notice::Update(_) | Notice::Reset(_)));
                state.waiting.push_back(Notice::Down { reason });
            }
            (_, notice) => state.waiting.push_back(notice),
        }
        state.rows += more;
        drop(state);
        self.arrived.notify_one();
    }

    /// Whether so many rows wait that no more should be read.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        self.lock().rows > limit
    }

    /// Returns when the receiver has taken something or has gone.
    pub(super) async fn room(&self, limit: usize) {
        loop {
            let taken = self.taken.notified();
            if !self.is_full(limit) {
                return;
            }
            taken.await;
        }
    }

    /// Returns when nobody receives any more.
    pub(super) async fn abandoned(&self) {
        loop {
            let taken = self.taken.notified();
            if self.lock().abandoned {
                return;
            }
            taken.await;
        }
    }

    /// The driver has stopped.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.arrived.notify_one();
    }
}

fn rows(notice: &Notice) -> usize {
    match notice {
        Notice::Reset(update) | Notice::Update(update) => update.len(),
        Notice::Up { .. } | Notice::Down { .. } => 0,
    }
}
