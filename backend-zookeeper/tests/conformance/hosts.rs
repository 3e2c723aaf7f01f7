//! Several hosts, of which some do not work.

use std::time::Duration;

use discovery_core::conformance::{Fixture, Link, eventually};
use discovery_core::{Policy, RegisterOptions, RegistryUrl};
use discovery_harness::{Proxy, ZooKeeper, ZooKeeperEnsemble, free_port};

use crate::fixture::{Wire, ZooKeeperFixture};
use crate::raw::Raw;
use crate::stage::{SETTLE, SOON, instance, policy, shows};

/// Some hosts refuse: no registration dies of it, in whatever order they are tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_hosts_that_refuse_cost_no_request() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let dead = [free_port().unwrap(), free_port().unwrap()];
    let hosts = format!("{},{},{}", dead[0].address(), fixture.server.address(), dead[1].address());
    for n in 0..20 {
        let backend = discovery_zookeeper::connect(&format!("zk://{hosts}").parse().unwrap()).unwrap();
        let options = RegisterOptions::default().with_deadline(SOON);
        backend.register(instance(&n.to_string(), 1), options).await.unwrap().deregister().await.unwrap();
    }
}

/// The host in use falls silent: another one takes over within the documented bound, with the same session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_a_host_that_falls_silent_is_left_for_another() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let mut wires = Vec::new();
    for _ in 0..2 {
        wires.push(Wire(Proxy::start(fixture.server.socket_address()).await.unwrap()));
    }
    let url: RegistryUrl = format!("zk://{},{}", wires[0].0.address(), wires[1].0.address()).parse().unwrap();
    let backend = discovery_zookeeper::open(&url, Policy::default()).unwrap();
    let registration = backend.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
    let watch = backend.watch("pay");
    watch.ready(SOON).await.unwrap();
    let revision = fixture.revision().await;
    wires.sort_by_key(Link::open);
    let [other, used] = &wires[..] else { panic!("two proxies") };
    assert_eq!((other.connects(), used.open()), (0, 1), "one host is kept while it works");
    // Connections that are open and new ones fall silent.
    used.0.freeze().await.unwrap();
    eventually(Duration::from_secs(15), "the other host to be used", async || {
        if other.connects() > 0 && watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
    eventually(Duration::from_secs(5), "the registration to hold", async || {
        if registration.state().is_registered() { Ok(()) } else { Err(registration.state()) }
    })
    .await;
    assert_eq!(fixture.revision().await, revision, "the session survived, and still something was written");
}

/// Each member of an ensemble is killed or frozen in turn, the leader too: registrations hold or come back, sets converge, and nothing
/// waits for the lost one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_an_ensemble_that_loses_a_member_goes_on() {
    if !ZooKeeper::available().expect("ZooKeeper, which CI requires") {
        return;
    }
    let ensemble = ZooKeeperEnsemble::start().await.unwrap();
    let url: RegistryUrl = format!("zk://{}", ensemble.addresses()).parse().unwrap();
    let (reader, writer) =
        (discovery_zookeeper::open(&url, policy()).unwrap(), discovery_zookeeper::open(&url, policy()).unwrap());
    let held = writer.register(instance("held", 1), RegisterOptions::default()).await.unwrap();
    let watch = reader.watch("pay");
    shows(&watch, SETTLE, &["held"]).await;
    // An election, and what the client waits between two rounds of the hosts.
    let bound = SETTLE + Duration::from_secs(5);
    for (n, member) in ensemble.members().iter().enumerate() {
        if n == 1 { member.freeze() } else { member.kill() }.unwrap();
        let begun = tokio::time::Instant::now();
        let id = format!("during-{n}");
        let during = writer.register(instance(&id, 1), RegisterOptions::default().with_deadline(bound)).await.unwrap();
        println!("member {n} lost: the next registration stands {:?} later", begun.elapsed());
        shows(&watch, bound, &[&id, "held"]).await;
        eventually(bound, "the registration to hold", async || {
            if held.state().is_registered() { Ok(()) } else { Err(held.state()) }
        })
        .await;
        println!("member {n} lost: sets have converged {:?} later", begun.elapsed());
        during.deregister_within(bound).await.unwrap();
        shows(&watch, bound, &["held"]).await;
        if n == 1 {
            member.thaw().unwrap()
        } else {
            member.start_again().await.unwrap()
        }
        eventually(bound, "the member to serve", async || match member.end_session(0).await {
            Ok(true) => Ok(()),
            other => Err(other),
        })
        .await;
    }
    let raw = Raw::connect(&ensemble.members()[0]).await;
    assert!(raw.of("/discovery/pay/held").await.len() == 1);
}
