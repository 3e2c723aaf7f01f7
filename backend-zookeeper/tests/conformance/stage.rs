//! What the tests of this crate's own share.

use std::time::Duration;

use discovery_core::conformance::eventually;
use discovery_core::{Instance, Policy, Watch};

pub(crate) const SOON: Duration = Duration::from_secs(3);
/// Session timeout, longest backoff, and three seconds.
pub(crate) const SETTLE: Duration = Duration::from_secs(5 + 2 + 3);

pub(crate) fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.ttl = Duration::from_secs(5);
    policy.timeout = Duration::from_secs(1);
    policy.backoff = Duration::from_secs(2);
    policy.probe = Duration::from_secs(1);
    policy
}

pub(crate) fn instance(id: &str, port: u16) -> Instance {
    Instance::builder("pay").id(id).endpoint(&format!("grpc://10.0.0.5:{port}")).build().unwrap()
}

/// Waits until a watch shows exactly these ids.
pub(crate) async fn shows(watch: &Watch, deadline: Duration, expected: &[&str]) {
    eventually(deadline, &format!("the set to be {expected:?}"), async || match watch.latest() {
        Some(set) if set.instances().iter().map(|i| i.id()).eq(expected.iter().copied()) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}
