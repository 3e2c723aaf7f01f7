//! The bounds of these tests, and handles under them.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::{Backend, Policy, RegistryUrl};
use discovery_harness::cases;

/// Short, so that what expires does so soon.
const TTL: Duration = Duration::from_secs(3);
pub(crate) const SETTLE: Duration = cases::settle(TTL);

pub(crate) fn policy() -> Policy {
    cases::policy(TTL)
}

/// Opens a handle on a URL of any of the schemes.
pub(crate) fn open(url: &str) -> Arc<dyn Backend> {
    let url: RegistryUrl = url.parse().unwrap();
    discovery_redis::open(&url, policy()).unwrap()
}
