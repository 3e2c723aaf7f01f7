//! The last good sets on disk, so that a process that starts while its store is away has somebody to call.
//!
//! - [`page`] is what a file says: for whom it is, when that was known good, and the records.
//! - [`folder`] reads, replaces and clears away files.
//! - [`writer`] is the one task of a handle that writes.

mod folder;
mod page;
#[cfg(test)]
#[cfg(unix)]
mod tests;
mod writer;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::throttle::Throttle;
use crate::snapshot::Since;
use crate::store::Scope;
use crate::{Error, ErrorKind, Result};
use folder::Folder;
pub(super) use page::Kept;
use page::{Label, Page};

/// How long a set is of use by default. An outage that lasts longer was noticed by somebody, and addresses are given to others meanwhile.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Files that are read at once. A disk that hangs blocks no more threads than these, of the 512 that Tokio has for such work; a slow one, on
/// a network say, has read a thousand sets within the time that each is waited for.
const MAX_READS: usize = 32;

/// Where last good sets are kept on disk, for a start without the store.
///
/// A watch whose store does not answer begins with the set from there, as stale since it was last known good. Any number of processes
/// may share a directory, also with different registries. It is made for its owner alone; one that is another user's, or that others may
/// write to, is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskCache {
    /// The directory. It is made when something is written.
    pub directory: PathBuf,
    /// Sets that were known good longer ago are neither served nor kept. Default one day. Of processes that share a directory the
    /// shortest counts.
    pub max_age: Duration,
}

impl DiskCache {
    /// Keeps sets in this directory, for one day.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), max_age: MAX_AGE }
    }

    /// Sets how long a set is of use.
    #[must_use]
    pub fn with_max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self
    }
}

/// How a handle's disk cache does. Whatever goes wrong there, watches go on.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CacheStatus {
    /// How many times a set was written.
    pub written: u64,
    /// How many times one could not be written.
    pub failed: u64,
    /// How many files could not be used: unreadable, broken, or made for something else.
    pub refused: u64,
    /// Why the last write failed, until one succeeds.
    pub failure: Option<Error>,
}

/// A handle's side of the cache. Dropping it lets the writer finish what it was given, and end.
pub(crate) struct Cache {
    shared: Arc<Shared>,
    /// Wakes the writer, and ends it when dropped.
    wake: watch::Sender<()>,
}

/// What the handle and its writer share.
struct Shared {
    folder: Folder,
    /// The store's identity.
    registry: String,
    /// The newest set of each scope that is not on disk yet, and when it was known good: one for each, however often it changes.
    pending: Mutex<HashMap<Scope, Job>>,
    reads: Arc<Semaphore>,
    status: Mutex<CacheStatus>,
    log: Throttle,
}

#[derive(Clone)]
struct Job {
    view: Arc<dyn Kept>,
    known_good: SystemTime,
}

impl Cache {
    pub(super) fn open(config: &DiskCache, registry: String, runtime: &Handle) -> Self {
        let shared = Arc::new(Shared {
            folder: Folder::new(config.directory.clone(), config.max_age),
            registry,
            pending: Mutex::default(),
            reads: Arc::new(Semaphore::new(MAX_READS)),
            status: Mutex::default(),
            log: Throttle::new(),
        });
        let (wake, woken) = watch::channel(());
        runtime.spawn(writer::run(shared.clone(), woken));
        Self { shared, wake }
    }

    /// Takes a set that is good at this moment, and returns at once.
    pub(super) fn keep(&self, scope: &Scope, view: Arc<dyn Kept>) {
        self.shared.pending().insert(scope.clone(), Job { view, known_good: SystemTime::now() });
        self.wake.send_replace(());
    }

    /// The set of a scope and when it was last known good, if the disk has one that is of use and says so in time.
    pub(super) async fn recall<K: Kept>(&self, scope: &Scope, patience: Duration) -> Option<(K, Since)> {
        let (shared, label) = (self.shared.clone(), self.shared.label(scope));
        let read = async {
            // The semaphore is never closed.
            let permit = self.shared.reads.clone().acquire_owned().await.ok();
            let read = tokio::task::spawn_blocking(move || {
                // It is given back when the read has ended, not when nobody waits for it any more.
                let _permit = permit;
                shared.folder.read(&label)?.map(|bytes| Page::read(&bytes, &label)).transpose()
            });
            read.await.unwrap_or_else(|error| Err(self.shared.error(scope, &error.to_string())))
        };
        let result = timeout(patience, read).await;
        let page = match result
            .unwrap_or_else(|_| Err(self.shared.error(scope, &format!("no answer within {patience:?}"))))
        {
            Ok(page) => page?,
            Err(error) => {
                self.shared.status().refused += 1;
                if self.shared.log.permits() {
                    tracing::warn!(%error, "a set on the disk cannot be used, and maybe others; it is as if it were not there");
                }
                return None;
            }
        };
        let usable = page.is_recent(self.shared.folder.max_age());
        usable.then(|| (page.view, Since::at(page.known_good)))
    }

    pub(super) fn max_age(&self) -> Duration {
        self.shared.folder.max_age()
    }

    pub(super) fn status(&self) -> CacheStatus {
        self.shared.status().clone()
    }
}

impl Shared {
    fn label(&self, scope: &Scope) -> Label {
        Label { registry: self.registry.clone(), scope: scope.clone() }
    }

    fn error(&self, scope: &Scope, why: &str) -> Error {
        Error::new(ErrorKind::Internal, "read", format!("{scope:?} in {}", self.folder.path().display()), why)
    }

    /// Writes one set. It blocks.
    fn write(&self, scope: &Scope, job: &Job) -> Result<()> {
        let label = self.label(scope);
        self.folder.write(&label, &Page::write(&label, job.known_good, &*job.view))
    }

    fn wrote(&self, result: &Result<()>) {
        let mut status = self.status();
        match result {
            Ok(()) => {
                status.written += 1;
                status.failure = None;
            }
            Err(error) => {
                status.failed += 1;
                status.failure = Some(error.clone());
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<Scope, Job>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> MutexGuard<'_, CacheStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
