//! The in-memory backend: the executable specification of what a store does for the engines.
//!
//! One [`MemoryStore`] is one registry; every [`connect`](MemoryStore::connect) is a handle of its own with a link of its own, as if it
//! were another process. [`MemoryLink`] and the methods of the store switch on what goes wrong in production: an outage, a silent
//! connection, lost replies, lost notifications, expiry, compaction, an empty restart. Time is Tokio's, so tests run on paused time.

mod faults;
mod state;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use faults::MemoryLink;

use crate::model::KeySpace;
use crate::store::RawChange;
use crate::{Backend, Engine, Policy, RegistryUrl, Result};
use state::State;
use store::Handle;

/// A registry in this process. Clones are the same registry.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

impl MemoryStore {
    /// Makes an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a handle with the default policy and prefix. Needs a running Tokio runtime.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, as everything that starts tasks.
    pub fn connect(&self) -> Arc<dyn Backend> {
        match self.open(KeySpace::DEFAULT_PREFIX, Policy::default()) {
            Ok((backend, _)) => backend,
            #[allow(clippy::panic, reason = "documented; the defaults are valid, so only the runtime can be missing")]
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens a handle under a prefix, together with the link through which its faults are switched.
    ///
    /// # Errors
    /// `InvalidInput` for a bad prefix or TTL.
    pub fn open(&self, prefix: &str, policy: Policy) -> Result<(Arc<dyn Backend>, MemoryLink)> {
        let link = MemoryLink::new();
        Ok((self.open_over(&link, prefix, policy)?, link))
    }

    /// Opens a handle over the link of a former one, as a process does that was restarted.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_over(&self, link: &MemoryLink, prefix: &str, policy: Policy) -> Result<Arc<dyn Backend>> {
        let handle = Handle::new(self.clone(), link.clone(), KeySpace::new(prefix)?);
        Ok(Engine::start(Arc::new(handle), policy)?)
    }

    /// Puts a record past all handles, without a lease, as an operator with a command line would.
    pub fn put_raw(&self, key: &str, value: &[u8]) {
        self.lock().put(key, value, None);
    }

    /// Deletes a record past all handles.
    pub fn delete_raw(&self, key: &str) {
        self.lock().delete(key);
    }

    /// The value under a key.
    pub fn get_raw(&self, key: &str) -> Option<Vec<u8>> {
        self.lock().get(key).map(|record| record.value.clone())
    }

    /// How many writes and removals the store has seen.
    pub fn revision(&self) -> u64 {
        self.lock().revision()
    }

    /// How many leases are alive.
    pub fn leases(&self) -> usize {
        self.lock().lease_count()
    }

    /// Revokes all leases, as if every TTL had passed at once.
    pub fn expire_leases(&self) {
        self.lock().expire_all();
    }

    /// Forgets the notifications so far: whoever did not read them yet has a gap.
    pub fn compact(&self) {
        self.lock().compact();
    }

    /// Loses everything: records, leases and revisions, as a store restarted without its data.
    pub fn restart_empty(&self) {
        self.lock().wipe();
    }

    /// Drops the next `count` notifications on their way to every handle.
    pub fn lose_notifications(&self, count: usize) {
        self.lock().lose(count);
    }

    /// Delivers notifications again, in reverse: doubled, late and out of order.
    pub fn replay_notifications(&self, count: usize) {
        self.lock().replay(count);
    }

    /// Refuses to read sets, or reads them again; subscriptions that are open go on.
    pub fn deny_reads(&self, denied: bool) {
        self.lock().deny_reads(denied);
    }

    /// Nobody ever sees a record whose lease has ended, whether or not somebody watches.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sweep();
        state
    }
}

/// Opens a fresh in-memory registry for a URL such as `memory:` or `memory:///prefix?ttl=2s`.
///
/// Each call makes a registry of its own; to share one between handles, use [`MemoryStore`].
///
/// # Errors
/// `InvalidInput` for a bad prefix or option.
pub fn connect(url: &RegistryUrl) -> Result<Arc<dyn Backend>> {
    let mut options = url.options();
    let policy = Policy::from_url(&mut options)?;
    options.finish()?;
    url.without_authority()?;
    Ok(MemoryStore::new().open(url.path(), policy)?.0)
}

/// The shortest and longest TTL of the in-memory store.
const TTL_BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(86_400));
/// The largest record, so that the limit can be tested without a server.
const MAX_RECORD: usize = 1024 * 1024;

type Notification = (u64, RawChange);
