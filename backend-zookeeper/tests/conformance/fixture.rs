//! A real ZooKeeper for the suite, with a proxy before every handle.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::conformance::{Fixture, Link};
use discovery_core::{Backend, Policy, Result};
use discovery_harness::ZooKeeper;
use discovery_harness::cases::{Subject, Wire};
use zookeeper_client::{Acl, AuthId, Error, Permission};

use crate::raw::{Nodes, Raw, SUPERSEDED};

pub(crate) const ZOOKEEPER: Subject =
    Subject::new("zookeeper", discovery_zookeeper::connect, discovery_zookeeper::open);

/// A server that handles speak to as to one of the version 3.`MINOR`, or, with 0, as to what it is.
pub(crate) struct Spoken<const MINOR: u8> {
    pub(crate) server: ZooKeeper,
    /// A proxy works as long as it is kept, also for a test that has no use for it.
    wires: Mutex<Vec<Arc<Wire>>>,
    /// Nodes whose rights were changed; who may not read cannot find them again.
    denied: Mutex<Vec<String>>,
}

pub(crate) type ZooKeeperFixture = Spoken<0>;

impl<const MINOR: u8> Spoken<MINOR> {
    /// A client of our own, past the code under test.
    pub(crate) async fn raw(&self) -> Raw {
        Raw::connect(&self.server).await
    }

    /// What follows the host in a URL.
    fn path(prefix: &str) -> String {
        if MINOR == 0 { prefix.to_owned() } else { format!("{prefix}?oldest=3.{MINOR}") }
    }
}

/// The sessions that records hang on.
pub(crate) fn sessions(nodes: &Nodes) -> BTreeSet<i64> {
    let owners = nodes.values().filter(|(data, _)| data != SUPERSEDED).map(|(_, stat)| stat.ephemeral_owner);
    owners.filter(|owner| *owner != 0).collect()
}

#[async_trait]
impl<const MINOR: u8> Fixture for Spoken<MINOR> {
    async fn start() -> Option<Self> {
        if !ZooKeeper::available().expect("ZooKeeper, which CI requires") {
            return None;
        }
        let server = ZooKeeper::start().await.expect("a started ZooKeeper");
        Some(Self { server, wires: Mutex::default(), denied: Mutex::default() })
    }

    /// Long enough for a restart of the server on a busy machine: the client's tries of a session of four seconds end 3.1 s after a loss,
    /// those of five seconds 6.3 s after.
    fn ttl(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn open(&self, prefix: &str, policy: Policy) -> Result<(Arc<dyn Backend>, Arc<dyn Link>)> {
        let server = self.server.socket_address();
        let (backend, wire) = ZOOKEEPER.open_through(server, &Self::path(prefix), policy).await?;
        self.wires.lock().expect("the wires").push(wire.clone());
        Ok((backend, wire))
    }

    async fn reopen(&self, prefix: &str, policy: Policy) -> Result<Arc<dyn Backend>> {
        let wire = self.wires.lock().expect("the wires").last().expect("a wire").clone();
        ZOOKEEPER.open_over(&wire, &Self::path(prefix), policy)
    }

    /// A record that is nobody's is a persistent node with the id as its name.
    async fn put_raw(&self, records: Vec<(String, Vec<u8>)>) {
        self.raw().await.put(records).await;
    }

    async fn delete_raw(&self, key: &str) {
        let raw = self.raw().await;
        for path in raw.of(key).await {
            raw.delete(&path).await;
        }
    }

    async fn get_raw(&self, key: &str) -> Option<Vec<u8>> {
        let raw = self.raw().await;
        let path = raw.of(key).await.pop()?;
        match raw.0.get_data(&path).await {
            Ok((data, _)) => Some(data),
            Err(Error::NoNode) => None,
            Err(error) => panic!("a raw read of {path}: {error}"),
        }
    }

    /// ZooKeeper's transaction number also rises with sessions that come and go, so the writes of nodes are counted: those of each node's
    /// data, and the children that came and went.
    async fn revision(&self) -> u64 {
        let writes = |(_, stat): &(_, zookeeper_client::Stat)| u64::from((stat.version + stat.cversion).unsigned_abs());
        self.raw().await.nodes().await.values().map(writes).sum()
    }

    /// A handle keeps its session while it is open; what counts is whether a record hangs on it.
    async fn leases(&self) -> usize {
        sessions(&self.raw().await.nodes().await).len()
    }

    async fn expire_leases(&self) {
        let raw = self.raw().await;
        for session in sessions(&raw.nodes().await) {
            // The owner may reconnect in between, upon which the server closes our connection, and it has to be done again.
            let mut answers = Vec::new();
            while sessions(&raw.nodes().await).contains(&session) {
                answers.push(self.server.end_session(session).await);
                assert!(answers.len() < 100, "the session does not end: {answers:?}");
            }
        }
    }

    /// ZooKeeper has no history of notifications: whoever is disconnected gets none.
    async fn forget_history(&self) {}

    async fn deny_reads(&self, denied: bool) {
        let raw = self.raw().await;
        if denied {
            *self.denied.lock().expect("the denied") =
                raw.nodes().await.into_keys().filter(|path| path != "/").collect();
        }
        let rights = if denied {
            Permission::WRITE | Permission::CREATE | Permission::DELETE | Permission::ADMIN
        } else {
            Permission::ALL
        };
        let paths = self.denied.lock().expect("the denied").clone();
        for path in paths {
            raw.0.set_acl(&path, &[Acl::new(rights, AuthId::anyone())], None).await.expect("changed rights");
        }
    }

    async fn freeze_store(&self, frozen: bool) {
        if frozen { self.server.freeze() } else { self.server.thaw() }.expect("a signal");
    }

    async fn restart(&self) {
        self.server.kill().expect("a killed ZooKeeper");
        self.server.start_again().await.expect("a restarted ZooKeeper");
    }

    async fn restart_empty(&self) {
        self.server.kill().expect("a killed ZooKeeper");
        self.server.start_empty().await.expect("an emptied ZooKeeper");
    }
}
