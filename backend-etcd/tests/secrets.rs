//! No secret is shown. In a binary of its own, since it takes the log of the process.

#![cfg(feature = "tls")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use discovery_harness::cases::{self, PASSWORD, Subject};
use discovery_harness::{Etcd, EtcdOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_never_shown() {
    if !Etcd::available().expect("etcd, which CI requires") {
        return;
    }
    // Its tokens can be recognised.
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").expect("a key");
    let token = format!("jwt,sign-method=HS256,priv-key={},ttl=4s", key.display());
    let options = EtcdOptions::default().with_args(["--auth-token", &token]);
    let server = Etcd::start_with(options).await.expect("a started etcd");
    for command in [&format!("user add root:{PASSWORD}"), "user grant-role root root", "auth enable"] {
        let words: Vec<_> = command.split(' ').collect();
        server.ctl(&words).await.expect("an account");
    }
    let subject = Subject::new("etcd", discovery_etcd::connect, discovery_etcd::open);
    cases::secrets_are_never_shown(subject, server.socket_address(), "root", Duration::from_secs(5)).await;
}
