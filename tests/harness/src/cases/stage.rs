//! Handles with short bounds, and waiting for a fact.

use std::{sync::Arc, time::Duration};

use discovery_core::{
    Backend, ErrorKind, Instance, Policy, RegisterOptions, Registration, Snapshot, Watch, conformance::eventually,
};

/// Short, so that a test of an outage ends soon.
const BACKOFF: Duration = Duration::from_secs(2);

/// A policy whose bounds are short enough for a test.
pub fn policy(ttl: Duration) -> Policy {
    let mut policy = Policy::default();
    policy.ttl = ttl;
    policy.backoff = BACKOFF;
    policy.probe = Duration::from_secs(1);
    policy
}

/// After this every repair is done under [`policy`]: TTL, longest backoff, and three seconds.
pub const fn settle(ttl: Duration) -> Duration {
    ttl.saturating_add(BACKOFF).saturating_add(Duration::from_secs(3))
}

/// An instance that nobody calls.
pub fn instance(service: &str, id: &str) -> Instance {
    Instance::builder(service).id(id).endpoint("grpc://127.0.0.1:9000").build().unwrap()
}

/// Registers an instance that nobody calls.
pub async fn register(backend: &Arc<dyn Backend>, service: &str, id: &str) -> Registration {
    backend.register(instance(service, id), RegisterOptions::default()).await.unwrap()
}

/// The ids of a set, in its order.
pub fn ids(snapshot: &Snapshot) -> Vec<String> {
    snapshot.instances().iter().map(|instance| instance.id().to_owned()).collect()
}

/// Waits until a watch shows exactly these ids, live.
pub async fn shows(watch: &Watch, limit: Duration, expected: &[&str]) -> Arc<Snapshot> {
    eventually(limit, &format!("the set to be {expected:?}"), async || match watch.latest() {
        Some(snapshot) if ids(&snapshot) == expected && snapshot.freshness().is_live() => Ok(snapshot),
        Some(snapshot) => Err(format!("{:?}, {:?}", ids(&snapshot), snapshot.freshness())),
        None => Err(format!("no set: {:?}", watch.freshness())),
    })
    .await
}

/// Waits until a registration holds.
pub async fn holds(registration: &Registration, limit: Duration) {
    eventually(limit, "the registration to hold", async || {
        if registration.state().is_registered() { Ok(()) } else { Err(registration.state()) }
    })
    .await;
}

/// Waits until a watch says that this keeps it from the store.
pub async fn refused(watch: &Watch, limit: Duration, kind: ErrorKind) {
    eventually(limit, &format!("the watch to name the reason, {kind:?}"), async || match watch.freshness().cause() {
        Some(cause) if cause.kind() == kind => Ok(()),
        _ => Err(watch.freshness()),
    })
    .await;
}
