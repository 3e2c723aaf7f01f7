//! What these tests share: handles with short bounds, and waiting for a set.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::conformance::eventually;
use discovery_core::{Backend, Instance, Policy, RegisterOptions, Registration, RegistryUrl, Snapshot, Watch};

/// TTL, longest backoff, and three seconds.
pub(crate) const SETTLE: Duration = Duration::from_secs(3 + 2 + 3);

pub(crate) fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.ttl = Duration::from_secs(3);
    policy.backoff = Duration::from_secs(2);
    policy.probe = Duration::from_secs(1);
    policy
}

pub(crate) fn open(url: &str) -> Arc<dyn Backend> {
    let url: RegistryUrl = url.parse().unwrap();
    discovery_redis::open(&url, policy()).unwrap()
}

pub(crate) fn instance(service: &str, id: &str) -> Instance {
    Instance::builder(service).id(id).endpoint("grpc://127.0.0.1:9000").build().unwrap()
}

pub(crate) async fn register(backend: &Arc<dyn Backend>, service: &str, id: &str) -> Registration {
    backend.register(instance(service, id), RegisterOptions::default()).await.unwrap()
}

pub(crate) fn ids(snapshot: &Snapshot) -> Vec<String> {
    snapshot.instances().iter().map(|instance| instance.id().to_owned()).collect()
}

/// Waits until a watch shows exactly these ids, live.
pub(crate) async fn shows(watch: &Watch, limit: Duration, expected: &[&str]) -> Arc<Snapshot> {
    eventually(limit, &format!("the set to be {expected:?}"), async || match watch.latest() {
        Some(snapshot) if ids(&snapshot) == expected && snapshot.freshness().is_live() => Ok(snapshot),
        Some(snapshot) => Err(format!("{:?}, {:?}", ids(&snapshot), snapshot.freshness())),
        None => Err(format!("no set: {:?}", watch.freshness())),
    })
    .await
}
