//! Several registries as one, over in-memory registries on paused time, one side of which fails.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod choosing;
mod comparing;
mod merging;
mod registering;

use std::sync::Arc;
use std::time::Duration;

use discovery_core::conformance::{eventually, stays};
use discovery_core::memory::{MemoryLink, MemoryStore};
use discovery_core::multi::{Mode, Multi, MultiOptions};
use discovery_core::{Backend, Instance, Policy, RegisterOptions, Registration, Snapshot, Watch, decode, encode};

/// Longer than any repair, brake and bound of these tests.
const SETTLE: Duration = Duration::from_secs(30);

/// Two registries, and a handle of each that the test goes past the other one with.
struct Stage {
    stores: [MemoryStore; 2],
    alone: [Arc<dyn Backend>; 2],
}

/// Both as one, over links of its own.
struct Handle {
    both: Arc<Multi>,
    sides: [Arc<dyn Backend>; 2],
    links: [MemoryLink; 2],
}

fn policy() -> Policy {
    let mut policy = Policy::default();
    (policy.ttl, policy.timeout, policy.probe) =
        (Duration::from_secs(3), Duration::from_secs(1), Duration::from_secs(1));
    (policy.connect_timeout, policy.backoff) = (Duration::from_secs(2), Duration::from_secs(2));
    policy
}

impl Stage {
    fn new() -> Self {
        let stores = [MemoryStore::new(), MemoryStore::new()];
        let alone = [0, 1].map(|at| stores[at].open("", policy()).unwrap().0);
        Self { stores, alone }
    }

    /// A handle whose registries at these places are away from the start.
    fn handle_without(&self, mode: Mode, away: &[usize]) -> Handle {
        let opened = [0, 1].map(|at| {
            let (backend, link) = self.stores[at].open("", policy()).unwrap();
            if away.contains(&at) {
                link.cut();
            }
            (backend, link)
        });
        let [(first, first_link), (second, second_link)] = opened;
        let sides = [first, second];
        let both = Multi::new(sides.to_vec(), MultiOptions::default().with_mode(mode)).unwrap();
        Handle { both, sides, links: [first_link, second_link] }
    }

    fn handle(&self, mode: Mode) -> Handle {
        self.handle_without(mode, &[])
    }

    fn stored(&self, at: usize, id: &str) -> Option<Instance> {
        let value = self.stores[at].get_raw(&format!("/discovery/pay/{id}"))?;
        Some(decode(&instance(id).key(), &value).unwrap().instance)
    }
}

/// Puts a record into one registry without a lease, as it stays until it is deleted.
fn put(stage: &Stage, at: usize, instance: &Instance) {
    stage.stores[at].put_raw(&format!("/discovery/{}/{}", instance.service(), instance.id()), &encode(instance));
}

fn weighing(id: &str, weight: u32) -> Instance {
    instance(id).to_builder().weight(weight).build().unwrap()
}

fn instance(id: &str) -> Instance {
    Instance::builder("pay").id(id).endpoint("grpc://127.0.0.1:9000").build().unwrap()
}

async fn register(backend: &dyn Backend, instance: Instance) -> Registration {
    backend.register(instance, RegisterOptions::default()).await.unwrap()
}

fn ids(set: &Snapshot) -> Vec<String> {
    set.instances().iter().map(|instance| instance.id().to_owned()).collect()
}

/// Waits until a fact holds.
async fn until(what: &str, fact: impl Fn() -> bool) {
    eventually(SETTLE, what, async || fact().then_some(()).ok_or("not yet")).await;
}

async fn shows(watch: &Watch, expected: &[&str]) -> Arc<Snapshot> {
    until(&format!("{expected:?}"), || watch.latest().is_some_and(|set| ids(&set) == expected)).await;
    watch.latest().unwrap()
}

/// Watches that a fact stays so.
async fn lasts(duration: Duration, what: &str, fact: impl Fn() -> bool) {
    stays(duration, what, async || fact().then_some(()).ok_or("it ended")).await;
}

/// What a watch shows from now on.
struct Seen(tokio::task::JoinHandle<Vec<Arc<Snapshot>>>);

impl Seen {
    fn of(watch: &Watch) -> Self {
        let mut watch = watch.clone();
        Self(tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(set) = watch.changed().await {
                seen.push(set);
            }
            seen
        }))
    }

    /// All of it, once the watch has ended.
    async fn all(self) -> Vec<Arc<Snapshot>> {
        self.0.await.unwrap()
    }
}
