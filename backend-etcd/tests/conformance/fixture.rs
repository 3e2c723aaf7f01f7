//! A real etcd for the suite, with a proxy before every handle.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::conformance::{Fixture, Link};
use discovery_core::{Backend, Policy, Result};
use discovery_harness::Etcd;
use discovery_harness::cases::{Subject, Wire};
use etcd_client::{Client, DeleteOptions, LeaseClient, Txn, TxnOp};

/// etcd refuses a transaction above this many operations, and a request above 1.5 MiB.
const BATCH: usize = 100;

pub(crate) const ETCD: Subject = Subject::new("etcd", discovery_etcd::connect, discovery_etcd::open);

pub(crate) struct EtcdFixture {
    pub(crate) server: Etcd,
    /// A proxy works as long as it is kept, also for a test that has no use for it.
    wires: Mutex<Vec<Arc<Wire>>>,
}

impl EtcdFixture {
    /// A client of our own, past the code under test.
    pub(crate) async fn client(&self) -> Client {
        Client::connect([self.server.address()], None).await.expect("a raw client")
    }

    async fn lease_ids(&self, leases: &mut LeaseClient) -> Vec<i64> {
        leases.leases().await.expect("the leases").leases().iter().map(|lease| lease.id()).collect()
    }
}

#[async_trait]
impl Fixture for EtcdFixture {
    async fn start() -> Option<Self> {
        if !Etcd::available().expect("etcd, which CI requires") {
            return None;
        }
        Some(Self { server: Etcd::start().await.expect("a started etcd"), wires: Mutex::default() })
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    async fn open(&self, prefix: &str, policy: Policy) -> Result<(Arc<dyn Backend>, Arc<dyn Link>)> {
        let (backend, wire) = ETCD.open_through(self.server.socket_address(), prefix, policy).await?;
        self.wires.lock().expect("the wires").push(wire.clone());
        Ok((backend, wire))
    }

    async fn reopen(&self, prefix: &str, policy: Policy) -> Result<Arc<dyn Backend>> {
        let wire = self.wires.lock().expect("the wires").last().expect("a wire").clone();
        ETCD.open_over(&wire, prefix, policy)
    }

    async fn put_raw(&self, records: Vec<(String, Vec<u8>)>) {
        let mut kv = self.client().await.kv_client();
        // A single put keeps a revision of its own, as an operator's would have.
        for batch in records.chunks(BATCH) {
            let puts: Vec<_> = batch.iter().map(|(k, v)| TxnOp::put(k.as_str(), v.as_slice(), None)).collect();
            kv.txn(Txn::new().and_then(puts)).await.expect("a raw put");
        }
    }

    async fn delete_raw(&self, key: &str) {
        self.client().await.kv_client().delete(key, None::<DeleteOptions>).await.expect("a raw delete");
    }

    async fn get_raw(&self, key: &str) -> Option<Vec<u8>> {
        let answer = self.client().await.kv_client().get(key, None).await.expect("a raw get");
        answer.kvs().first().map(|record| record.value().to_vec())
    }

    async fn revision(&self) -> u64 {
        let answer = self.client().await.kv_client().get("/", None).await.expect("a raw get");
        answer.header().map_or(0, |header| header.revision().unsigned_abs())
    }

    async fn leases(&self) -> usize {
        self.lease_ids(&mut self.client().await.lease_client()).await.len()
    }

    async fn expire_leases(&self) {
        let mut leases = self.client().await.lease_client();
        for id in self.lease_ids(&mut leases).await {
            leases.revoke(id).await.expect("a revoked lease");
        }
    }

    async fn forget_history(&self) {
        let revision = i64::try_from(self.revision().await).expect("a revision");
        self.client().await.kv_client().compact(revision, None).await.expect("a compaction");
    }

    async fn deny_reads(&self, denied: bool) {
        let root = ["--user", "root:root"];
        let commands: &[&[&str]] = if denied {
            &[
                &["user", "add", "root:root"],
                &["user", "grant-role", "root", "root"],
                &["role", "add", "guest"],
                &["auth", "enable"],
            ]
        } else {
            &[&["auth", "disable"]]
        };
        for command in commands {
            let whole: Vec<_> = if denied { command.to_vec() } else { root.iter().chain(*command).copied().collect() };
            self.server.ctl(&whole).await.expect("a changed right");
        }
    }

    async fn freeze_store(&self, frozen: bool) {
        if frozen { self.server.freeze() } else { self.server.thaw() }.expect("a signal");
    }

    async fn restart(&self) {
        self.server.kill().expect("a killed etcd");
        self.server.start_again().await.expect("a restarted etcd");
    }

    async fn restart_empty(&self) {
        self.server.kill().expect("a killed etcd");
        self.server.start_empty().await.expect("an emptied etcd");
    }
}
