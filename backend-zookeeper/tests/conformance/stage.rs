//! What the tests of this crate's own share.

use std::time::Duration;

use discovery_core::{Instance, Policy};
use discovery_harness::{ZooKeeper, cases};

pub(crate) const SOON: Duration = Duration::from_secs(3);
/// As the fixture's.
const TTL: Duration = Duration::from_secs(5);
pub(crate) const SETTLE: Duration = cases::settle(TTL);

pub(crate) fn policy() -> Policy {
    let mut policy = cases::policy(TTL);
    policy.timeout = Duration::from_secs(1);
    policy
}

pub(crate) fn instance(id: &str, port: u16) -> Instance {
    Instance::builder("pay").id(id).endpoint(&format!("grpc://10.0.0.5:{port}")).build().unwrap()
}

/// Whether the installed server has what came with a version; says on standard error which test is left out where it has not.
pub(crate) async fn has(what: &str, since: (u32, u32)) -> bool {
    let server = ZooKeeper::start().await.unwrap();
    let version = server.version().await.unwrap();
    if version < since {
        eprintln!("left out: ZooKeeper {}.{} has no {what}", version.0, version.1);
    }
    version >= since
}
