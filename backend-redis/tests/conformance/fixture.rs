//! A real Redis for the suite, with a proxy before every handle.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::conformance::{Fixture, Link};
use discovery_core::{Backend, Policy, RegistryUrl, Result};
use discovery_harness::{Proxy, Redis};

use crate::operator::Operator;

pub(crate) struct RedisFixture {
    pub(crate) server: Redis,
    /// A proxy works as long as it is kept, also for a test that has no use for it.
    wires: Mutex<Vec<Arc<Wire>>>,
}

impl RedisFixture {
    pub(crate) async fn operator(&self) -> Operator {
        Operator::connect(&self.server.address()).await
    }
}

/// Whether Redis is installed; says so on standard error if not.
pub(crate) fn installed() -> bool {
    ["redis-server", "redis-cli"].iter().all(|it| discovery_harness::available(it).expect("Redis, which CI requires"))
}

/// Opens a handle through a proxy of its own.
pub(crate) async fn open_through(
    server: &Redis,
    prefix: &str,
    policy: Policy,
) -> Result<(Arc<dyn Backend>, Arc<Wire>)> {
    let proxy = Proxy::start(server.socket_address()).await.expect("a proxy");
    let url: RegistryUrl = format!("redis://{}{prefix}", proxy.address()).parse()?;
    Ok((discovery_redis::open(&url, policy)?, Arc::new(Wire(proxy))))
}

#[async_trait]
impl Fixture for RedisFixture {
    async fn start() -> Option<Self> {
        if !installed() {
            return None;
        }
        Some(Self { server: Redis::start().await.expect("a started Redis"), wires: Mutex::default() })
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    async fn open(&self, prefix: &str, policy: Policy) -> Result<(Arc<dyn Backend>, Arc<dyn Link>)> {
        let (backend, wire) = open_through(&self.server, prefix, policy).await?;
        self.wires.lock().expect("the wires").push(wire.clone());
        Ok((backend, wire))
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

/// The proxy of one handle.
pub(crate) struct Wire(pub(crate) Proxy);

#[async_trait]
impl Link for Wire {
    async fn pass(&self) {
        self.0.pass().await.expect("a passing proxy");
    }

    async fn cut(&self) {
        // Attempts have to be counted, so they are accepted and reset.
        self.0.cut_counting().await.expect("a cut proxy");
    }

    async fn freeze(&self) {
        self.0.freeze_open().await.expect("a frozen proxy");
    }

    async fn swallow_replies(&self) {
        self.0.swallow_replies().await.expect("a swallowing proxy");
    }

    async fn delay(&self, delay: Duration) {
        self.0.delay(delay).await.expect("a slow proxy");
    }

    fn connects(&self) -> u64 {
        self.0.connects()
    }

    fn open(&self) -> usize {
        self.0.open()
    }

    fn received(&self) -> u64 {
        self.0.bytes_down()
    }
}
