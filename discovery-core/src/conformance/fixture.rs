//! What the suite needs of a store besides the backend under test.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{Backend, Policy, Result};

/// A store of one test's own, with everything that can go wrong with it.
///
/// The raw methods go past the code under test, as an operator's command line does.
#[async_trait]
pub trait Fixture: Send + Sync + Sized + 'static {
    /// Starts a fresh, empty store; `None` if it is not installed, after saying so on standard error.
    async fn start() -> Option<Self>;

    /// The shortest TTL that the store really keeps, so that tests end soon.
    fn ttl(&self) -> Duration;

    /// Opens a handle under a prefix (empty for the default), over a link of its own, as if from another process.
    async fn open(&self, prefix: &str, policy: Policy) -> Result<(Arc<dyn Backend>, Arc<dyn Link>)>;

    /// Opens another handle over the link that was opened last, as the same process does after a restart.
    async fn reopen(&self, prefix: &str, policy: Policy) -> Result<Arc<dyn Backend>>;

    /// Puts records without a lease. Keys are in the layout of [`KeySpace`](crate::KeySpace).
    async fn put_raw(&self, records: Vec<(String, Vec<u8>)>);

    /// Deletes one record.
    async fn delete_raw(&self, key: &str);

    /// Reads one record.
    async fn get_raw(&self, key: &str) -> Option<Vec<u8>>;

    /// A number that rises with every write to the store.
    async fn revision(&self) -> u64;

    /// How many connections a handle has at most, whatever it does.
    fn connections(&self) -> usize {
        1
    }

    /// How many leases or sessions hold records or could.
    async fn leases(&self) -> usize;

    /// Ends all leases or sessions at once.
    async fn expire_leases(&self);

    /// Makes the notifications so far unavailable to whoever is disconnected.
    async fn forget_history(&self);

    /// Takes the right to read from all handles, and gives it back; what is open may stay open.
    async fn deny_reads(&self, denied: bool);

    /// Stops the store's process without closing anything, as SIGSTOP does, and lets it go on.
    async fn freeze_store(&self, frozen: bool);

    /// Stops the store and starts it again with its data.
    async fn restart(&self);

    /// Stops the store and starts it again without its data.
    async fn restart_empty(&self);
}

/// The network between one handle and the store.
#[async_trait]
pub trait Link: Send + Sync {
    /// Everything works.
    async fn pass(&self);

    /// Open connections break, new ones are refused or broken at once.
    async fn cut(&self);

    /// The connections open now stay open and silent for ever; new ones work once [`pass`](Self::pass) is called, or at once where the
    /// link can tell them apart.
    async fn freeze(&self);

    /// Requests reach the store, answers do not come back.
    async fn swallow_replies(&self);

    /// Everything works, and takes this much longer in either direction.
    async fn delay(&self, delay: Duration);

    /// How many connections were attempted so far.
    fn connects(&self) -> u64;

    /// How many connections are open.
    fn open(&self) -> usize;

    /// How many bytes came from the store.
    fn received(&self) -> u64;
}
