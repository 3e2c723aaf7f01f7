//! Several hosts, of which the first does not work.

use std::time::Duration;

use discovery_core::RegisterOptions;
use discovery_core::conformance::{Fixture, eventually};
use discovery_harness::cases::{self, holds, instance, register};
use discovery_harness::{Etcd, EtcdCluster};

use crate::fixture::{ETCD, EtcdFixture};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_a_first_host_that_refuses_costs_no_request() {
    let Some(fixture) = EtcdFixture::start().await else { return };
    cases::a_first_host_that_refuses_costs_no_request(ETCD, fixture.server.socket_address()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_a_host_that_falls_silent_is_left_for_the_next() {
    let Some(fixture) = EtcdFixture::start().await else { return };
    let used = cases::a_host_that_falls_silent_is_left(ETCD, &fixture, fixture.server.socket_address()).await;
    assert_eq!(used, 0, "hosts are tried in their order");
}

/// One member of three is killed, then another frozen instead: registrations hold, sets converge, and nothing waits for the lost one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_cluster_that_loses_a_member_goes_on() {
    if !Etcd::available().expect("etcd, which CI requires") {
        return;
    }
    let cluster = EtcdCluster::start().await.unwrap();
    let (writer, reader) = (ETCD.connect(cluster.addresses()), ETCD.connect(cluster.addresses()));
    let held = register(&writer, "pay", "held").await;
    let watch = reader.watch("pay");
    watch.ready(Duration::from_secs(5)).await.unwrap();
    // Both handles are on the first host. The bound: a second of probing, an election, and the next host.
    let settle = Duration::from_secs(15);
    for (round, freeze) in [(0, false), (1, true)] {
        let lost = &cluster.members()[round];
        if freeze { lost.freeze() } else { lost.kill() }.unwrap();
        let begun = tokio::time::Instant::now();
        let id = format!("joined-{round}");
        let options = RegisterOptions::default().with_deadline(settle);
        let joined = writer.register(instance("pay", &id), options).await.unwrap();
        eventually(settle, "the set to be the store's", async || match watch.latest() {
            Some(set) if set.get("held").is_some() && set.get(&id).is_some() && set.freshness().is_live() => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        println!(
            "one member {}: registered and seen {:?} later",
            if freeze { "frozen" } else { "killed" },
            begun.elapsed()
        );
        holds(&held, settle).await;
        joined.deregister().await.unwrap();
        if freeze {
            lost.thaw().unwrap();
        } else {
            lost.start_again().await.unwrap();
        }
    }
}
