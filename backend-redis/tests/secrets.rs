//! No secret is shown. In a binary of its own, since it takes the log of the process.

#![cfg(feature = "tls")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use discovery_harness::Redis;
use discovery_harness::cases::{self, PASSWORD, Subject};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_never_shown() {
    if !Redis::available().expect("Redis, which CI requires") {
        return;
    }
    let server = Redis::start().await.expect("a started Redis");
    let password = format!(">{PASSWORD}");
    server.cli(&["ACL", "SETUSER", "app", "on", &password, "~*", "&*", "+@all"]).await.expect("an account");
    server.cli(&["ACL", "SETUSER", "default", "off"]).await.expect("no default account");
    let subject = Subject::new("redis", discovery_redis::connect, discovery_redis::open);
    cases::secrets_are_never_shown(subject, server.socket_address(), "app", Duration::from_secs(5)).await;
}
