//! Several hosts, of which the first does not work or is no master.

use discovery_core::conformance::{Fixture, eventually};
use discovery_core::{ErrorKind, RegisterOptions};
use discovery_harness::cases::{self, holds, instance, register, shows};
use discovery_harness::{Redis, RedisCluster, RedisOptions, RedisSentinel};

use crate::fixture::{REDIS, RedisFixture};
use crate::stage::{SETTLE, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_a_first_host_that_refuses_costs_no_request() {
    let Some(fixture) = RedisFixture::start().await else { return };
    cases::a_first_host_that_refuses_costs_no_request(REDIS, fixture.server.socket_address()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_a_host_that_falls_silent_is_left_for_the_next() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let used = cases::a_host_that_falls_silent_is_left(REDIS, &fixture, fixture.server.socket_address()).await;
    assert_eq!(used, 0, "hosts are tried in their order");
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
    holds(&registration, SETTLE).await;
}

/// A URL of the wrong kind is a typed error at once, which says what to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r12_a_url_of_the_wrong_kind_is_told_the_right_one() {
    if !Redis::available().unwrap() || !discovery_harness::available("redis-sentinel").unwrap() {
        return;
    }
    let server = Redis::start().await.unwrap();
    let (cluster, pair) = (RedisCluster::start().await.unwrap(), RedisSentinel::start().await.unwrap());
    // Of so many services some lie on each master.
    let services: Vec<_> = (0..9).map(|n| format!("s{n}")).collect();
    for (url, services, advice) in [
        (format!("redis+cluster://{}", server.address()), &services[..1], "write redis://"),
        (format!("redis+sentinel://{}/main", server.address()), &services[..1], "write redis://"),
        (format!("redis+cluster://{}", pair.addresses()), &services[..1], "write redis://"),
        (format!("redis://{}", pair.addresses()), &services[..1], "write redis+sentinel://"),
        (format!("redis://{}", cluster.servers()[0].address()), &services[..], "write redis+cluster://"),
    ] {
        let mut said = false;
        for service in services {
            // A handle that was redirected once is of no use any more.
            let backend = open(&url);
            if let Err(error) = backend.register(instance(service, "a"), RegisterOptions::default()).await {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
                assert!(error.message().contains(advice), "{url}: {error}");
                said = true;
            }
        }
        assert!(said, "{url} works");
    }
}
