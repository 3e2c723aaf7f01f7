//! Several hosts, of which some do not work.

use std::time::Duration;

use discovery_core::conformance::{Fixture, eventually};
use discovery_core::{RegisterOptions, RegistryUrl};
use discovery_harness::cases::{self, Subject, holds, shows};
use discovery_harness::{ZooKeeper, ZooKeeperEnsemble, free_port};

use crate::fixture::{ZOOKEEPER, ZooKeeperFixture};
use crate::raw::Raw;
use crate::stage::{SETTLE, SOON, instance, policy};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_a_host_that_falls_silent_is_left_for_another() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    // To find out that a server is older costs a second connection, which may be to the other host. So it is told.
    let told = Subject::new("zookeeper", discovery_zookeeper::connect, |url, policy| {
        discovery_zookeeper::open(&format!("{url}?oldest=3.4").parse()?, policy)
    });
    let subject = if fixture.server.version().await.unwrap() < (3, 6) { told } else { ZOOKEEPER };
    cases::a_host_that_falls_silent_is_left(subject, &fixture, fixture.server.socket_address()).await;
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
        holds(&held, bound).await;
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
