//! What the tests of the suite share: short policies, handles, and waiting for a fact.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Fixture, Link};
use crate::{Backend, Instance, Key, KeySpace, Policy, Registration, RegistrationState, Snapshot, Watch};

/// A fixture and the numbers that follow from its TTL.
pub struct Stage<F> {
    /// The store under test.
    pub fixture: F,
}

impl<F: Fixture> Stage<F> {
    pub(super) fn new(fixture: F) -> Self {
        Self { fixture }
    }

    /// A policy whose bounds are short enough for a test.
    pub(super) fn policy(&self) -> Policy {
        Policy {
            ttl: self.fixture.ttl(),
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(2),
            backoff: Duration::from_secs(2),
            probe: Duration::from_secs(1),
            reconcile: Duration::from_secs(2),
            ..Policy::default()
        }
    }

    /// After this every repair is done: TTL, longest backoff, and 3 s.
    pub(super) fn settle(&self) -> Duration {
        self.fixture.ttl() + self.policy().backoff + Duration::from_secs(3)
    }

    pub(super) async fn handle(&self) -> (Arc<dyn Backend>, Arc<dyn Link>) {
        self.handle_with("", self.policy()).await
    }

    pub(super) async fn handle_with(&self, prefix: &str, policy: Policy) -> (Arc<dyn Backend>, Arc<dyn Link>) {
        self.fixture.open(prefix, policy).await.unwrap_or_else(|error| fail(&error.to_string()))
    }

    /// Puts records without a lease, which stay until they are deleted.
    pub(super) async fn put(&self, instances: &[Instance]) {
        let records = instances.iter().map(|i| (path(i.service(), i.id()), crate::encode(i))).collect();
        self.fixture.put_raw(records).await;
    }

    pub(super) async fn is_stored(&self, service: &str, id: &str) -> bool {
        self.fixture.get_raw(&path(service, id)).await.is_some()
    }
}

/// The key of a record under the default prefix.
pub(super) fn path(service: &str, id: &str) -> String {
    space("").key(&Key { service: service.into(), id: id.into() })
}

pub(super) fn space(prefix: &str) -> KeySpace {
    KeySpace::new(prefix).unwrap_or_else(|error| fail(&error.to_string()))
}

pub(super) fn instance(service: &str, id: &str) -> Instance {
    let builder = Instance::builder(service).id(id).endpoint("grpc://127.0.0.1:9000");
    builder.build().unwrap_or_else(|error| fail(&error.to_string()))
}

pub(super) async fn register(backend: &Arc<dyn Backend>, instance: Instance) -> Registration {
    let key = instance.key();
    let registered = backend.register(instance, crate::RegisterOptions::default()).await;
    registered.unwrap_or_else(|error| fail(&format!("registering {key} failed: {error}")))
}

/// Waits until a watch shows exactly these ids.
pub(super) async fn shows(watch: &Watch, deadline: Duration, expected: &[&str]) -> Arc<Snapshot> {
    eventually(deadline, &format!("the set to be {expected:?}"), async || match watch.latest() {
        Some(snapshot) if ids(&snapshot) == expected => Ok(snapshot),
        Some(snapshot) => Err(format!("{:?}, {:?}", ids(&snapshot), snapshot.freshness())),
        None => Err(format!("no set: {:?}", watch.freshness())),
    })
    .await
}

/// Waits until a watch shows exactly these ids, and is live.
pub(super) async fn shows_live(watch: &Watch, deadline: Duration, expected: &[&str]) -> Arc<Snapshot> {
    eventually(deadline, &format!("the live set to be {expected:?}"), async || match watch.latest() {
        Some(snapshot) if snapshot.freshness().is_live() && ids(&snapshot) == expected => Ok(snapshot),
        other => Err(format!("{other:?}")),
    })
    .await
}

pub(super) async fn is_registered(registration: &Registration, deadline: Duration) {
    eventually(deadline, "the registration to hold", async || match registration.state() {
        RegistrationState::Registered => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await;
}

pub(super) fn ids(snapshot: &Snapshot) -> Vec<String> {
    snapshot.instances().iter().map(|instance| instance.id().to_owned()).collect()
}

/// Asks for a fact until it is there; fails with what was seen last.
///
/// # Panics
/// When the deadline has passed.
pub async fn eventually<T, E: Debug>(deadline: Duration, what: &str, mut fact: impl AsyncFnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + deadline;
    loop {
        match fact().await {
            Ok(fact) => return fact,
            Err(seen) if Instant::now() >= end => fail(&format!("waited {deadline:?} for {what}; last seen: {seen:?}")),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Watches that something stays as it is; fails as soon as it does not.
pub async fn stays<E: Debug>(duration: Duration, what: &str, mut fact: impl AsyncFnMut() -> Result<(), E>) {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        if let Err(seen) = fact().await {
            fail(&format!("{what} did not last {duration:?}: {seen:?}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[allow(clippy::panic, reason = "this is how a test fails")]
#[track_caller]
pub(super) fn fail(why: &str) -> ! {
    panic!("{why}")
}
