//! The whole suite once more, as servers of 3.4 are spoken to: by one-shot watches, and by asking each node whose it is.

use std::time::Duration;

use discovery_core::conformance::{Fixture, Link, eventually};
use discovery_core::{ErrorKind, Instance, RegisterOptions, encode};
use discovery_harness::cases::{holds, shows};

use crate::fixture::{Spoken, ZOOKEEPER};
use crate::stage::{SETTLE, SOON, instance, policy};

type OldFixture = Spoken<4>;

discovery_core::conformance!(OldFixture, #[tokio::test(flavor = "multi_thread", worker_threads = 2)]);

/// R12: a version that is none, or too old, is refused.
#[tokio::test]
async fn r12_a_version_that_is_not_known_is_refused() {
    for version in ["3.3", "new", ""] {
        let url = format!("zk://127.0.0.1/?oldest={version}").parse().unwrap();
        let error = discovery_zookeeper::connect(&url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

/// L1: watches that were left, with what they watch written and deleted, cost no connection: servers of 3.4 cannot be asked to forget them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_watches_that_were_left_cost_no_connection() {
    let Some(fixture) = OldFixture::start().await else { return };
    let (backend, link) = fixture.open("", policy()).await.unwrap();
    let records = |weight| {
        let ids = (0..50).map(|n| format!("{n:02}"));
        ids.map(|id| (format!("/discovery/pay/{id}"), encode(&weighted(&id, weight)))).collect::<Vec<_>>()
    };
    let connects = async || {
        backend.watch("other").ready(SOON).await.unwrap();
        link.connects()
    };
    let before = connects().await;
    for weight in 1..=3 {
        fixture.put_raw(records(weight)).await;
        let watches = (backend.watch("pay"), backend.watch_services());
        watches.0.ready(SOON).await.unwrap();
        eventually(SOON, "the service", async || match watches.1.latest() {
            Some(list) if !list.names().is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        drop(watches);
        fixture.put_raw(records(weight + 10)).await;
        for (key, _) in records(0).iter().take(25) {
            fixture.delete_raw(key).await;
        }
    }
    let watch = backend.watch("pay");
    let left: Vec<_> = (25..50).map(|n| format!("{n:02}")).collect();
    shows(&watch, SOON, &left.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!((connects().await, link.open()), (before, 1));
}

fn weighted(id: &str, weight: u32) -> Instance {
    instance(id, 1).to_builder().weight(weight).build().unwrap()
}

/// R5, W8: more paths than the client bears to watch end no session when it reconnects; what nobody watches is found by reconciliation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r05_w08_more_records_than_can_be_watched_cost_no_session() {
    let Some(fixture) = OldFixture::start().await else { return };
    let (padding, count) = ("x".repeat(100), 2_000);
    let id = |n: usize| format!("{n:04}{padding}");
    let records = |weight| (0..count).map(move |n| (n, weight));
    let put = async |records: Vec<(usize, u32)>| {
        let record = |(n, weight)| (format!("/discovery/pay/{}", id(n)), encode(&weighted(&id(n), weight)));
        fixture.put_raw(records.into_iter().map(record).collect()).await;
    };
    put(records(1).collect()).await;
    let mut policy = policy();
    policy.reconcile = Duration::from_millis(100);
    let (backend, link) = ZOOKEEPER.open_through(fixture.server.socket_address(), "?oldest=3.4", policy).await.unwrap();
    let registration = backend.register(instance("own", 1), RegisterOptions::default()).await.unwrap();
    let watch = backend.watch("pay");
    assert_eq!(watch.ready(SOON).await.unwrap().len(), count + 1);
    let revision = fixture.revision().await;
    let connects = link.connects();
    link.cut().await;
    eventually(SOON, "stale", async || if watch.freshness().is_stale() { Ok(()) } else { Err(()) }).await;
    link.pass().await;
    eventually(SETTLE, "live", async || if watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) })
        .await;
    holds(&registration, SETTLE).await;
    assert!(link.connects() > connects, "there was no reconnect");
    assert_eq!(fixture.revision().await, revision, "the session survived, and still something was written");
    put(records(2).collect()).await;
    // Five rounds of pages, each of which has to find the same twice.
    eventually(SETTLE + Duration::from_secs(15), "every change", async || {
        let set = watch.latest().unwrap();
        let old = set.instances().iter().filter(|i| i.weight() == 1).count();
        if old == 0 { Ok(()) } else { Err((old, watch.freshness())) }
    })
    .await;
}
