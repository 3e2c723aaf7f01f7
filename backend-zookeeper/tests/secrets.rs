//! No secret is shown. In a binary of its own, since it takes the log of the process.

#![cfg(feature = "tls")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use discovery_harness::ZooKeeper;
use discovery_harness::cases::{self, Subject};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_never_shown() {
    if !ZooKeeper::available().expect("ZooKeeper, which CI requires") {
        return;
    }
    // It takes any password: the first one owns what it creates, and another one is refused.
    let server = ZooKeeper::start().await.expect("a started ZooKeeper");
    let subject = Subject::new("zookeeper", discovery_zookeeper::connect, discovery_zookeeper::open);
    cases::secrets_are_never_shown(subject, server.socket_address(), "app", Duration::from_secs(5)).await;
}
