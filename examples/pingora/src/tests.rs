//! A pingora load balancer sees who joins and who leaves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use discovery_kit::conformance::eventually;
use discovery_kit::memory::MemoryStore;
use discovery_kit::{Backend, Instance, Policy, Registration, State};
use pingora_load_balancing::LoadBalancer;
use pingora_load_balancing::selection::{RoundRobin, weighted::Weighted};

use crate::discovered::{Discovered, follow};

const SOON: Duration = Duration::from_secs(20);

async fn join(registry: &Arc<dyn Backend>, id: &str, endpoint: &str) -> Registration {
    let instance = Instance::builder("web").id(id).endpoint(endpoint).build().unwrap();
    registry.register(instance, Default::default()).await.unwrap()
}

/// Who is selected how often in that many turns.
fn turns(balancer: &LoadBalancer<RoundRobin>, count: usize) -> BTreeMap<String, usize> {
    let mut turns = BTreeMap::new();
    for backend in (0..count).filter_map(|_| balancer.select(b"", 256)) {
        let instance = backend.ext.get::<Arc<Instance>>().unwrap();
        *turns.entry(format!("{} at {}", instance.id(), backend.addr)).or_insert(0) += 1;
    }
    turns
}

/// Waits until these are selected equally often, and nobody else.
async fn settle(balancer: &LoadBalancer<RoundRobin>, expected: &[&str]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|one| ((*one).to_owned(), 10)).collect();
    eventually(SOON, &format!("{expected:?}"), async || match turns(balancer, 10 * expected.len().max(1)) {
        now if now == expected => Ok(()),
        now => Err(now),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pingora_selects_who_is_there_and_nobody_else() {
    let (registry, link) = MemoryStore::new().open("", Policy::default()).unwrap();
    let balancer: Arc<LoadBalancer<RoundRobin>> = Arc::new(Discovered::balancer(registry.watch("web")));
    let (watch, followed) = (registry.watch("web"), balancer.clone());
    let following = tokio::spawn(async move { follow(watch, &followed).await });
    settle(&balancer, &[]).await;

    let a = join(&registry, "a", "http://10.0.0.1:80").await;
    settle(&balancer, &["a at 10.0.0.1:80"]).await;
    let b = join(&registry, "b", "http://[2001:db8::1]:80").await;
    let _other = join(&registry, "c", "udp://10.0.0.3:80").await;
    settle(&balancer, &["a at 10.0.0.1:80", "b at [2001:db8::1]:80"]).await;

    // The same id at another address.
    a.update(|record| record.endpoints(["http://10.0.0.4:80".parse().unwrap()])).await.unwrap();
    settle(&balancer, &["a at 10.0.0.4:80", "b at [2001:db8::1]:80"]).await;
    b.update(|record| record.state(State::Draining)).await.unwrap();
    settle(&balancer, &["a at 10.0.0.4:80"]).await;
    b.update(|record| record.state(State::Serving)).await.unwrap();
    settle(&balancer, &["a at 10.0.0.4:80", "b at [2001:db8::1]:80"]).await;
    b.deregister().await.unwrap();
    settle(&balancer, &["a at 10.0.0.4:80"]).await;

    // An outage removes nobody, also when pingora asks by itself.
    link.cut();
    let watch = registry.watch("web");
    eventually(SOON, "a stale set", async || watch.freshness().is_stale().then_some(()).ok_or("live")).await;
    balancer.update().await.unwrap();
    assert_eq!(turns(&balancer, 10), BTreeMap::from([("a at 10.0.0.4:80".to_owned(), 10)]));

    registry.close(Duration::ZERO).await.ok();
    tokio::time::timeout(SOON, following).await.unwrap().unwrap();
}

/// Weights come from the registry, and pingora would take them at their word: as many slots, or none at all and a panic.
#[tokio::test]
async fn no_weight_hurts() {
    let registry = discovery_kit::connect("memory:").unwrap();
    let mut registered = Vec::new();
    for (port, weight) in [(1, u32::MAX), (2, 400), (3, 0)] {
        let one = join(&registry, &port.to_string(), &format!("tcp://10.0.0.1:{port}")).await;
        one.update(|record| record.weight(weight)).await.unwrap();
        registered.push(one);
    }
    let balancer: LoadBalancer<Weighted> = Discovered::balancer(registry.watch("web"));
    eventually(SOON, "two backends", async || {
        balancer.update().await.unwrap();
        let backends = balancer.backends().get_backend();
        let weights: Vec<_> = backends.iter().map(|backend| backend.weight).collect();
        if weights == [5, 2] { Ok(()) } else { Err(weights) }
    })
    .await;
    assert!(balancer.select(b"key", 256).is_some());

    // An error, where an empty set would be taken for nobody.
    let (registry, link) = MemoryStore::new().open("", Policy::default()).unwrap();
    link.cut();
    tokio::time::pause();
    let balancer: LoadBalancer<RoundRobin> = Discovered::balancer(registry.watch("web"));
    let error = balancer.update().await.unwrap_err();
    assert!(error.to_string().contains("no set to balance over"), "{error}");
}
