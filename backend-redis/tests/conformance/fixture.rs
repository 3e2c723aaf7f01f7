//! A real Redis for the suite, with a proxy before every handle.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::conformance::{Fixture, Link};
use discovery_core::{Backend, Policy, Result};
use discovery_harness::Redis;
use discovery_harness::cases::{Subject, Wire};

use crate::operator::Operator;
use crate::stage::policy;

pub(crate) const REDIS: Subject = Subject::new("redis", discovery_redis::connect, discovery_redis::open);

pub(crate) struct RedisFixture {
    pub(crate) server: Redis,
    /// A proxy works as long as it is kept, also for a test that has no use for it.
    wires: Mutex<Vec<Arc<Wire>>>,
}

impl RedisFixture {
    pub(crate) async fn operator(&self) -> Operator {
        Operator::connect(&self.server.address()).await
    }

    /// A handle straight on the server.
    pub(crate) fn handle(&self) -> Arc<dyn Backend> {
        REDIS.open(self.server.address(), policy())
    }
}

#[async_trait]
impl Fixture for RedisFixture {
    async fn start() -> Option<Self> {
        if !Redis::available().expect("Redis, which CI requires") {
            return None;
        }
        Some(Self { server: Redis::start().await.expect("a started Redis"), wires: Mutex::default() })
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    async fn open(&self, prefix: &str, policy: Policy) -> Result<(Arc<dyn Backend>, Arc<dyn Link>)> {
        let (backend, wire) = REDIS.open_through(self.server.socket_address(), prefix, policy).await?;
        self.wires.lock().expect("the wires").push(wire.clone());
        Ok((backend, wire))
    }

    async fn reopen(&self, prefix: &str, policy: Policy) -> Result<Arc<dyn Backend>> {
        let wire = self.wires.lock().expect("the wires").last().expect("a wire").clone();
        REDIS.open_over(&wire, prefix, policy)
    }

    async fn put_raw(&self, records: Vec<(String, Vec<u8>)>) {
        self.operator().await.put(&records).await;
    }

    async fn delete_raw(&self, key: &str) {
        self.operator().await.delete(key).await;
    }

    async fn get_raw(&self, key: &str) -> Option<Vec<u8>> {
        self.operator().await.get(key).await
    }

    /// One for requests and notifications, one for reading sets.
    fn connections(&self) -> usize {
        2
    }

    async fn revision(&self) -> u64 {
        self.operator().await.changes().await
    }

    async fn leases(&self) -> usize {
        let leased = self.operator().await.leased().await;
        leased.into_iter().map(|(_, _, lease)| lease).collect::<HashSet<_>>().len()
    }

    async fn expire_leases(&self) {
        self.operator().await.expire().await;
    }

    async fn forget_history(&self) {
        // Redis keeps none: what is published while nobody listens is gone.
    }

    async fn deny_reads(&self, denied: bool) {
        let right = if denied { "-@read" } else { "+@all" };
        self.server.cli(&["ACL", "SETUSER", "default", right]).await.expect("a changed right");
    }

    async fn freeze_store(&self, frozen: bool) {
        if frozen { self.server.freeze() } else { self.server.thaw() }.expect("a signal");
    }

    async fn restart(&self) {
        self.server.kill().expect("a killed Redis");
        self.server.start_again().await.expect("a restarted Redis");
    }

    async fn restart_empty(&self) {
        self.server.kill().expect("a killed Redis");
        self.server.start_empty().await.expect("an emptied Redis");
    }
}
