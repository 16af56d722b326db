//! A mirror of a database for those who just want to read it.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{mpsc, watch};

use super::{Client, Notice, Options, driver};
use crate::{Cache, Capabilities, Op, OpResult, Schema, TxnError};

/// A client with its cache. Cheap to clone; the connection ends with the last clone.
///
/// When [`Replica::transact`] returns, the cache shows what the transaction did.
#[derive(Debug, Clone)]
pub struct Replica {
    client: Client,
    mirror: Arc<Mirror>,
    revision: watch::Receiver<State>,
}

/// What the driver task writes and the replicas read.
#[derive(Debug)]
pub(super) struct Mirror {
    cache: RwLock<Cache>,
    capabilities: RwLock<Arc<Capabilities>>,
    revision: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct State {
    revision: u64,
    up: bool,
    loaded: bool,
}

// === impl Replica ===

impl Replica {
    /// Starts the driver task with a cache of its own.
    pub fn connect(options: Options) -> Replica {
        let schema = Arc::new(Schema::empty(&options.database));
        let (revision, receiver) = watch::channel(State::default());
        let mirror = Arc::new(Mirror {
            cache: RwLock::new(Cache::with_indexes(schema, options.indexes.clone())),
            capabilities: RwLock::default(),
            revision,
        });
        let (commands, requests) = mpsc::channel(64);
        tokio::spawn(driver::run(options, requests, driver::Sink::Mirror(Arc::downgrade(&mirror))));
        Replica { client: Client { commands }, mirror, revision: receiver }
    }

    /// Makes transactions; see [`Client::transact`].
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Makes a transaction; see [`Client::transact`].
    pub async fn transact(&self, ops: Vec<Op>) -> Result<Vec<OpResult>, TxnError> {
        self.client.transact(ops).await
    }

    /// Looks at the cache. No change is applied meanwhile, so keep it short.
    pub fn read<R>(&self, look: impl FnOnce(&Cache) -> R) -> R {
        look(&self.mirror.cache.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the server has; nothing before the first connection.
    pub fn capabilities(&self) -> Arc<Capabilities> {
        self.mirror.capabilities.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is a connection and the content has been loaded.
    pub fn is_up(&self) -> bool {
        let state = *self.revision.borrow();
        state.up && state.loaded
    }

    /// Waits until there is a connection and the content has been loaded.
    pub async fn ready(&self) {
        let mut states = self.revision.clone();
        // The sender lives in the mirror, which this replica holds.
        let _ = states.wait_for(|state| state.up && state.loaded).await;
    }

    /// Counts the changes of content and connection.
    pub fn revision(&self) -> u64 {
        self.revision.borrow().revision
    }

    /// Waits until there has been a change after this revision; tells the revision then.
    pub async fn changed_since(&self, revision: u64) -> u64 {
        let mut states = self.revision.clone();
        // The sender lives in the mirror, which this replica holds.
        match states.wait_for(|state| state.revision > revision).await {
            Ok(state) => state.revision,
            Err(_) => revision,
        }
    }

    /// Looks at the cache now and after each change, until `look` finds what it wants. May be dropped at
    /// any time. Content not loaded yet is not looked at.
    pub async fn wait_for<R>(&self, mut look: impl FnMut(&Cache) -> Option<R>) -> R {
        let mut states = self.revision.clone();
        loop {
            let loaded = states.borrow_and_update().loaded;
            if loaded && let Some(found) = self.read(&mut look) {
                return found;
            }
            let _ = states.changed().await;
        }
    }
}

// === impl Mirror ===

impl Mirror {
    /// Applies a notice. False when the cache turned out to be wrong and must be loaded anew.
    pub(super) fn apply(&self, notice: &Notice) -> bool {
        let mut state = *self.revision.borrow();
        state.revision += 1;
        let mut sound = true;
        match notice {
            Notice::Up { capabilities, .. } => {
                *self.capabilities.write().unwrap_or_else(PoisonError::into_inner) = capabilities.clone();
                state.up = true;
            }
            Notice::Reset(update) => {
                self.cache.write().unwrap_or_else(PoisonError::into_inner).reset(update);
                state.loaded = true;
            }
            Notice::Update(update) => {
                let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
                cache.apply(update);
                sound = cache.inconsistencies() == 0;
            }
            Notice::Down { .. } => state.up = false,
        }
        self.revision.send_replace(state);
        sound
    }
}
