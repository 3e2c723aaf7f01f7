//! How many checks run at once.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

/// As many checks at once by default. Each is a socket, and many systems give a process 1,024 files; a tenth of a second's worth of
/// checks of 6,000 instances fits, while a thousand hanging instances do not starve the process.
const DEFAULT: usize = 64;

/// A bound on the checks that run at once, for all checkers that were given clones of it; 64 by default.
///
/// Whoever waits for a slot is late, not unhealthy: the timeout begins with the check. If n instances hang, a round takes
/// n × timeout / slots.
#[derive(Debug, Clone)]
pub struct Slots(Arc<Semaphore>);

impl Slots {
    /// Allows this many checks at once, at least one.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Waits for a slot, and holds it.
    pub(crate) async fn take(&self) -> Option<SemaphorePermit<'_>> {
        // Nobody closes the semaphore.
        self.0.acquire().await.ok()
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}
