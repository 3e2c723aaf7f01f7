//! A fleet moves from ZooKeeper to etcd without a stop, one process after the other, while everybody calls.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use discovery_greeter::Named;
use discovery_harness::{eventually, stays};
use discovery_kit::picker::RoundRobin;
use discovery_kit::{Backend, RegistrationState, Watch};
use discovery_tonic::{Channel, RunningServer, ServiceServer};

use crate::calls::{Load, SETTLE, connected};
use crate::node::{outcome, run};
use crate::registry::Registry;

/// Who is registered: the ids between the end of `register` and the beginning of the end. Written by the servers, read by the callers.
type Living = Arc<Mutex<BTreeSet<String>>>;

/// A greeter with a handle of its own, as in a process of its own.
struct Server {
    running: RunningServer,
    id: String,
    living: Living,
}

impl Server {
    async fn start(url: &str, name: &str, living: &Living) -> Self {
        let registry = discovery_kit::connect(url).unwrap();
        let server = ServiceServer::bind("127.0.0.1:0").await.unwrap().with_grace(Duration::from_millis(500));
        let running = server.start(registry, "greeter", Named::routes(name)).await.unwrap();
        let id = running.registration().instance().id().to_owned();
        Self { running, id, living: living.clone() }
    }

    /// Waits until it is registered wherever it has to be.
    async fn registered(&self) {
        eventually(SETTLE, "the registration", async || match self.running.registration().state() {
            RegistrationState::Registered => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        self.living.lock().unwrap().insert(self.id.clone());
    }

    /// Drains, deregisters and stops it.
    async fn end(self) {
        self.living.lock().unwrap().remove(&self.id);
        self.running.shutdown().await.unwrap();
    }

    /// Starts another one in its place, and then ends it, as a rolling restart does.
    async fn replace(&mut self, url: &str, name: &str) {
        let next = Self::start(url, name, &self.living).await;
        next.registered().await;
        std::mem::replace(self, next).end().await;
    }
}

/// A caller with a handle of its own, that calls without a pause and watches its set.
struct Caller {
    registry: Arc<dyn Backend>,
    watch: Watch,
    load: Load,
    /// Ends with what was missing in a set that had it before.
    check: tokio::task::JoinHandle<Vec<String>>,
}

impl Caller {
    async fn start(url: &str, living: &Living, servers: usize) -> Self {
        let registry = discovery_kit::connect(url).unwrap();
        // Who lives now has to be in the first set already.
        let mut known: BTreeSet<String> = living.lock().unwrap().clone();
        let watch = registry.watch("greeter");
        let (mut sets, living) = (watch.clone(), living.clone());
        let check = tokio::spawn(async move {
            let mut missing = Vec::new();
            while let Some(set) = sets.changed().await {
                let alive = living.lock().unwrap().clone();
                let lost = known.iter().filter(|id| alive.contains(*id) && set.get(id).is_none());
                missing.extend(lost.map(|id| format!("{id} in {set:?}")));
                known.extend(set.instances().iter().map(|instance| instance.id().to_owned()));
            }
            missing
        });
        let channel =
            Channel::builder(watch.clone(), RoundRobin::new()).with_backoff_cap(Duration::from_secs(1)).build();
        connected(&channel, servers).await;
        Self { registry, watch, load: Load::start(&channel), check }
    }

    /// Waits until its set is exactly the living.
    async fn knows(&self, living: &Living) {
        eventually(SETTLE, "the living", async || {
            let set = self.watch.latest().ok_or_else(|| "no set".to_owned())?;
            let ids: BTreeSet<_> = set.instances().iter().map(|instance| instance.id().to_owned()).collect();
            if ids == *living.lock().unwrap() { Ok(()) } else { Err(format!("{set:?}")) }
        })
        .await;
    }

    /// Ends it, and says how many calls succeeded.
    async fn end(self) -> u64 {
        let (succeeded, failures) = self.load.end().await;
        assert!(failures.is_empty(), "{succeeded} succeeded, failed: {failures:?}");
        self.registry.close(SETTLE).await.unwrap();
        let missing = self.check.await.unwrap();
        assert!(missing.is_empty(), "{missing:?}");
        succeeded
    }

    async fn replace(&mut self, url: &str, living: &Living) -> u64 {
        let servers = living.lock().unwrap().len();
        let next = Self::start(url, living, servers).await;
        std::mem::replace(self, next).end().await
    }
}

async fn all_know(callers: &[Caller], living: &Living) {
    for caller in callers {
        caller.knows(living).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_moves_from_zookeeper_to_etcd_without_a_failed_call() {
    let real = Registry::real().await;
    let named = |name| real.iter().find(|registry| registry.name == name);
    let (Some(old), Some(new)) = (named("zookeeper"), named("etcd")) else { return };
    let (old_url, new_url) = (old.url("moving"), new.url("moving"));
    let both_url = format!("multi:union?away=5s {old_url} {new_url}");
    let living = Living::default();
    let mut succeeded = 0;

    // Everybody is on ZooKeeper.
    let mut servers = Vec::new();
    for name in ["one", "two", "three"] {
        let server = Server::start(&old_url, name, &living).await;
        server.registered().await;
        servers.push(server);
    }
    let mut callers = Vec::new();
    for _ in 0..2 {
        callers.push(Caller::start(&old_url, &living, 3).await);
    }
    let compare = [&*old_url, &new_url, "3"];
    let (code, text, errors) = outcome("compare", &compare).await;
    assert_eq!(code, Some(1), "{text}{errors}");
    assert_eq!(text.matches("is only on the first registry").count(), 3, "{text}");

    // One after the other goes to both, in any order.
    for (at, name) in ["one", "two", "three"].into_iter().enumerate() {
        servers[at].replace(&both_url, name).await;
        if let Some(caller) = callers.get_mut(at) {
            succeeded += caller.replace(&both_url, &living).await;
        }
    }
    all_know(&callers, &living).await;
    let compare = [&*old_url, &new_url];
    assert_eq!(run("compare", &compare).await, "equal: 1 services with 3 instances\n");

    // Either side is away for longer than its TTL and than the bound, while one instance goes and another comes.
    for (away, name) in [(new, "two"), (old, "three")] {
        away.leave();
        for caller in &callers {
            eventually(SETTLE, "stale", async || caller.watch.freshness().is_stale()).await;
        }
        let fourth = Server::start(&both_url, "four", &living).await;
        living.lock().unwrap().insert(fourth.id.clone());
        all_know(&callers, &living).await;
        let known = || callers.iter().all(|caller| caller.watch.latest().is_some_and(|set| set.len() == 4));
        stays(Duration::from_secs(6), "four instances", known).await;
        // It cannot be removed from where it never was nor is reached; it need not be told.
        let gone = fourth.id.clone();
        living.lock().unwrap().remove(&gone);
        fourth.running.shutdown().await.unwrap();
        all_know(&callers, &living).await;
        away.come_back().await;
        for server in &servers {
            server.registered().await;
        }
        for caller in &callers {
            eventually(SETTLE, "live", async || caller.watch.freshness().is_live()).await;
        }
        let gone = || callers.iter().all(|caller| caller.watch.latest().is_some_and(|set| set.get(&gone).is_none()));
        stays(Duration::from_secs(2), "its absence", gone).await;
        let at = if name == "two" { 1 } else { 2 };
        servers[at].replace(&both_url, name).await;
        all_know(&callers, &living).await;
        assert_eq!(run("compare", &compare).await, "equal: 1 services with 3 instances\n");
    }

    // One after the other goes to etcd alone; in the end nobody misses ZooKeeper.
    for (at, name) in ["one", "two", "three"].into_iter().enumerate() {
        if let Some(caller) = callers.get_mut(at) {
            succeeded += caller.replace(&new_url, &living).await;
        }
        servers[at].replace(&new_url, name).await;
    }
    all_know(&callers, &living).await;
    old.leave();
    let known = || callers.iter().all(|caller| caller.watch.latest().is_some_and(|set| set.freshness().is_live()));
    stays(Duration::from_secs(6), "live sets without ZooKeeper", known).await;
    all_know(&callers, &living).await;
    for caller in callers {
        succeeded += caller.end().await;
    }
    for server in servers {
        server.end().await;
    }
    assert!(succeeded > 1_000, "{succeeded} calls");
}
