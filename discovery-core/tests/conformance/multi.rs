//! Two in-memory registries as one: what happens to a store happens to both.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::conformance::{Fixture, Link};
use discovery_core::multi::{Multi, MultiOptions};
use discovery_core::{Backend, Policy, Result};

use crate::memory::Memory;

struct Both([Memory; 2]);

impl Both {
    /// The most of either.
    async fn most(&self, count: impl AsyncFn(&Memory) -> usize) -> usize {
        count(&self.0[0]).await.max(count(&self.0[1]).await)
    }
}

#[async_trait]
impl Fixture for Both {
    async fn start() -> Option<Self> {
        Some(Self([Memory::start().await?, Memory::start().await?]))
    }

    fn ttl(&self) -> Duration {
        self.0[0].ttl()
    }

    async fn open(&self, prefix: &str, policy: Policy) -> Result<(Arc<dyn Backend>, Arc<dyn Link>)> {
        let (first, first_link) = self.0[0].open(prefix, policy.clone()).await?;
        let (second, second_link) = self.0[1].open(prefix, policy).await?;
        let both = Multi::new(vec![first, second], MultiOptions::default())?;
        Ok((both, Arc::new(Links([first_link, second_link]))))
    }

    async fn reopen(&self, prefix: &str, policy: Policy) -> Result<Arc<dyn Backend>> {
        let sides = vec![self.0[0].reopen(prefix, policy.clone()).await?, self.0[1].reopen(prefix, policy).await?];
        Ok(Multi::new(sides, MultiOptions::default())?)
    }

    async fn put_raw(&self, records: Vec<(String, Vec<u8>)>) {
        self.0[0].put_raw(records.clone()).await;
        self.0[1].put_raw(records).await;
    }

    async fn delete_raw(&self, key: &str) {
        self.0[0].delete_raw(key).await;
        self.0[1].delete_raw(key).await;
    }

    async fn get_raw(&self, key: &str) -> Option<Vec<u8>> {
        let [first, second] = [self.0[0].get_raw(key).await, self.0[1].get_raw(key).await];
        first.or(second)
    }

    /// What is written is written to both; an odd write shows too.
    async fn revision(&self) -> u64 {
        (self.0[0].revision().await + self.0[1].revision().await).div_ceil(2)
    }

    /// One for each side.
    fn connections(&self) -> usize {
        self.0.iter().map(Fixture::connections).sum()
    }

    async fn leases(&self) -> usize {
        self.most(async |side| side.leases().await).await
    }

    async fn expire_leases(&self) {
        self.0[0].expire_leases().await;
        self.0[1].expire_leases().await;
    }

    async fn forget_history(&self) {
        self.0[0].forget_history().await;
        self.0[1].forget_history().await;
    }

    async fn deny_reads(&self, denied: bool) {
        self.0[0].deny_reads(denied).await;
        self.0[1].deny_reads(denied).await;
    }

    async fn freeze_store(&self, frozen: bool) {
        self.0[0].freeze_store(frozen).await;
        self.0[1].freeze_store(frozen).await;
    }

    async fn restart(&self) {
        self.0[0].restart().await;
        self.0[1].restart().await;
    }

    async fn restart_empty(&self) {
        self.0[0].restart_empty().await;
        self.0[1].restart_empty().await;
    }
}

struct Links([Arc<dyn Link>; 2]);

#[async_trait]
impl Link for Links {
    async fn pass(&self) {
        self.0[0].pass().await;
        self.0[1].pass().await;
    }

    async fn cut(&self) {
        self.0[0].cut().await;
        self.0[1].cut().await;
    }

    async fn freeze(&self) {
        self.0[0].freeze().await;
        self.0[1].freeze().await;
    }

    async fn swallow_replies(&self) {
        self.0[0].swallow_replies().await;
        self.0[1].swallow_replies().await;
    }

    async fn delay(&self, delay: Duration) {
        self.0[0].delay(delay).await;
        self.0[1].delay(delay).await;
    }

    /// What the suite bounds is a bound for each side.
    fn connects(&self) -> u64 {
        self.0[0].connects().max(self.0[1].connects())
    }

    fn open(&self) -> usize {
        self.0[0].open() + self.0[1].open()
    }

    fn received(&self) -> u64 {
        self.0[0].received() + self.0[1].received()
    }
}

discovery_core::conformance!(Both, #[tokio::test(start_paused = true)]);
