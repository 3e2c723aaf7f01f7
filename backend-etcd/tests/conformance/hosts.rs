//! Several hosts, of which the first does not work.

use std::time::Duration;

use discovery_core::conformance::{Fixture, Link, eventually};
use discovery_core::{Instance, Policy, RegisterOptions, RegistryUrl};
use discovery_harness::{EtcdCluster, Proxy, free_port};

use crate::fixture::{EtcdFixture, Wire};

fn instance(id: &str) -> Instance {
    Instance::builder("pay").id(id).endpoint("grpc://127.0.0.1:9000").build().unwrap()
}

/// The first host refuses: no request dies of it, neither the first nor the hundredth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_a_first_host_that_refuses_costs_no_request() {
    let Some(fixture) = EtcdFixture::start().await else { return };
    let dead = free_port().unwrap();
    let url: RegistryUrl = format!("etcd://{},{}", dead.address(), fixture.server.address()).parse().unwrap();
    let backend = discovery_etcd::connect(&url).unwrap();
    for n in 0..100 {
        let options = RegisterOptions::default().with_deadline(Duration::from_secs(3));
        backend.register(instance(&n.to_string()), options).await.unwrap().deregister().await.unwrap();
    }
}

/// The first host is a black hole: the second takes over within the documented bound, and keeps the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_a_host_that_falls_silent_is_left_for_the_next() {
    let Some(fixture) = EtcdFixture::start().await else { return };
    let proxies = [(); 2].map(|()| Proxy::start(fixture.server.socket_address()));
    let [first, second] = proxies;
    let (first, second) = (Wire(first.await.unwrap()), Wire(second.await.unwrap()));
    let url: RegistryUrl = format!("etcd://{},{}", first.0.address(), second.0.address()).parse().unwrap();
    let backend = discovery_etcd::open(&url, Policy::default()).unwrap();
    let registration = backend.register(instance("a"), RegisterOptions::default()).await.unwrap();
    let watch = backend.watch("pay");
    watch.ready(Duration::from_secs(3)).await.unwrap();
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
    assert_eq!(fixture.revision().await, revision, "the lease survived, and still something was written");
}

/// One member of three is killed, then another frozen instead: registrations hold, sets converge, and nothing waits for the lost one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_cluster_that_loses_a_member_goes_on() {
    if !discovery_harness::available("etcd").expect("etcd, which CI requires") {
        return;
    }
    let cluster = EtcdCluster::start().await.unwrap();
    let url: RegistryUrl = format!("etcd://{}", cluster.addresses()).parse().unwrap();
    let (writer, reader) = (discovery_etcd::connect(&url).unwrap(), discovery_etcd::connect(&url).unwrap());
    let held = writer.register(instance("held"), RegisterOptions::default()).await.unwrap();
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
        let joined = writer.register(instance(&id), options).await.unwrap();
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
        eventually(settle, "the registration to hold", async || {
            if held.state().is_registered() { Ok(()) } else { Err(held.state()) }
        })
        .await;
        joined.deregister().await.unwrap();
        if freeze {
            lost.thaw().unwrap();
        } else {
            lost.start_again().await.unwrap();
        }
    }
}
