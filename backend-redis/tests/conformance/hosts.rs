//! Several hosts, of which the first does not work or is no master.

use std::time::Duration;

use discovery_core::conformance::{Fixture, Link, eventually};
use discovery_core::{Policy, RegisterOptions, RegistryUrl};
use discovery_harness::{Proxy, Redis, RedisOptions, free_port};

use crate::fixture::{RedisFixture, Wire};
use crate::stage::{SETTLE, instance, open, register, shows};

/// The first host refuses: no request dies of it, neither the first nor the hundredth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_a_first_host_that_refuses_costs_no_request() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let dead = free_port().unwrap();
    let backend = open(&format!("redis://{},{}", dead.address(), fixture.server.address()));
    for n in 0..100 {
        let options = RegisterOptions::default().with_deadline(Duration::from_secs(3));
        backend.register(instance("pay", &n.to_string()), options).await.unwrap().deregister().await.unwrap();
    }
}

/// The first host is a black hole: the second takes over within the documented bound, and the records are kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_a_host_that_falls_silent_is_left_for_the_next() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let proxies = [(); 2].map(|()| Proxy::start(fixture.server.socket_address()));
    let [first, second] = proxies;
    let (first, second) = (Wire(first.await.unwrap()), Wire(second.await.unwrap()));
    let url: RegistryUrl = format!("redis://{},{}", first.0.address(), second.0.address()).parse().unwrap();
    let backend = discovery_redis::open(&url, Policy::default()).unwrap();
    let registration = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    shows(&watch, Duration::from_secs(3), &["a"]).await;
    let revision = fixture.revision().await;
    assert_eq!(second.connects(), 0, "the first host is kept while it works");
    // Connections that are open and new ones fall silent.
    first.0.freeze().await.unwrap();
    eventually(Duration::from_secs(15), "the second host to be used", async || {
        if second.connects() > 0 && watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
    eventually(Duration::from_secs(5), "the registration to hold", async || {
        if registration.state().is_registered() { Ok(()) } else { Err(registration.state()) }
    })
    .await;
    assert_eq!(fixture.revision().await, revision, "the records survived, and still something was written");
}

/// The first host is a replica, and later the master is demoted without its connection breaking: READONLY leads to the other host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_demoted_master_is_left_for_the_new_one() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let master = &fixture.server;
    master.cli(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await.unwrap();
    let port = |server: &Redis| server.socket_address().port().to_string();
    let options = RedisOptions::default().with_args(["--replicaof", "127.0.0.1", &port(master)]);
    let replica = Redis::start_with(options).await.unwrap();
    eventually(SETTLE, "the replica", async || {
        let info = replica.cli(&["INFO", "replication"]).await.unwrap();
        if info.contains("master_link_status:up") { Ok(()) } else { Err(info) }
    })
    .await;
    let backend = open(&format!("redis://{},{}", replica.address(), master.address()));
    let registration = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    shows(&watch, SETTLE, &["a"]).await;
    replica.cli(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    master.cli(&["REPLICAOF", "127.0.0.1", &port(&replica)]).await.unwrap();
    let _b = backend
        .register(instance("pay", "b"), RegisterOptions::default().with_deadline(SETTLE))
        .await
        .expect("the new master to be found");
    shows(&watch, SETTLE, &["a", "b"]).await;
    assert!(replica.cli(&["GET", "{/discovery/pay}/b"]).await.unwrap().contains("\"id\":\"b\""));
    eventually(SETTLE, "the registration to hold", async || {
        if registration.state().is_registered() { Ok(()) } else { Err(registration.state()) }
    })
    .await;
}
