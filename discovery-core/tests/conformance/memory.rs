//! The in-memory backend.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::conformance::{Fixture, Link};
use discovery_core::memory::{MemoryLink, MemoryStore};
use discovery_core::{Backend, Policy, Result};

/// The store, and the links of all handles.
pub(crate) struct Memory(MemoryStore, Mutex<Vec<MemoryLink>>);

#[async_trait]
impl Fixture for Memory {
    async fn start() -> Option<Self> {
        Some(Self(MemoryStore::new(), Mutex::default()))
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    async fn open(&self, prefix: &str, policy: Policy) -> Result<(Arc<dyn Backend>, Arc<dyn Link>)> {
        let (backend, link) = self.0.open(prefix, policy)?;
        self.1.lock().unwrap().push(link.clone());
        Ok((backend, Arc::new(Wire(link))))
    }

    async fn reopen(&self, prefix: &str, policy: Policy) -> Result<Arc<dyn Backend>> {
        let link = self.1.lock().unwrap().last().unwrap().clone();
        self.0.open_over(&link, prefix, policy)
    }

    async fn put_raw(&self, records: Vec<(String, Vec<u8>)>) {
        records.iter().for_each(|(key, value)| self.0.put_raw(key, value));
    }

    async fn delete_raw(&self, key: &str) {
        self.0.delete_raw(key);
    }

    async fn get_raw(&self, key: &str) -> Option<Vec<u8>> {
        self.0.get_raw(key)
    }

    async fn revision(&self) -> u64 {
        self.0.revision()
    }

    async fn leases(&self) -> usize {
        self.0.leases()
    }

    async fn expire_leases(&self) {
        self.0.expire_leases();
    }

    async fn forget_history(&self) {
        self.0.compact();
    }

    async fn deny_reads(&self, denied: bool) {
        self.0.deny_reads(denied);
    }

    async fn freeze_store(&self, frozen: bool) {
        for link in self.1.lock().unwrap().iter() {
            if frozen { link.stop() } else { link.pass() }
        }
    }

    async fn restart(&self) {
        // Nothing in this store depends on a connection, so a restart that keeps its data is a gap in the notifications.
        self.0.compact();
    }

    async fn restart_empty(&self) {
        self.0.restart_empty();
    }
}

struct Wire(MemoryLink);

#[async_trait]
impl Link for Wire {
    async fn pass(&self) {
        self.0.pass();
    }

    async fn cut(&self) {
        self.0.cut();
    }

    async fn freeze(&self) {
        self.0.freeze();
    }

    async fn swallow_replies(&self) {
        self.0.swallow_replies();
    }

    async fn delay(&self, delay: Duration) {
        self.0.delay(delay);
    }

    fn connects(&self) -> u64 {
        self.0.connects()
    }

    fn open(&self) -> usize {
        usize::from(self.0.is_open())
    }

    fn received(&self) -> u64 {
        self.0.received()
    }
}

discovery_core::conformance!(Memory, #[tokio::test(start_paused = true)]);
