//! What etcd limits: answers of 4 MiB, and its space.

use std::time::Duration;

use discovery_core::conformance::{Fixture, eventually};
use discovery_core::{ErrorKind, Key, KeySpace, RegisterOptions, encode};
use discovery_harness::cases::{self, large};
use discovery_harness::{Etcd, EtcdOptions};

use crate::fixture::{ETCD, EtcdFixture};

/// Ten thousand instances of a kibibyte in one service, and sixty of a megabyte in another: both are read whole and followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l04_f17_sets_far_above_the_decoding_limit() {
    let Some(fixture) = EtcdFixture::start().await else { return };
    let space = KeySpace::new("").unwrap();
    let key = |service: &str, id: &str| space.key(&Key { service: service.into(), id: id.into() });
    let records = (0..10_000).map(|n| large(&format!("{n:05}"), 1_024)).map(|i| (key("pay", i.id()), encode(&i)));
    fixture.put_raw(records.collect()).await;
    for n in 0..60 {
        let big = large(&format!("{n:02}"), 1_000_000).to_builder().build().unwrap();
        let value = String::from_utf8(encode(&big)).unwrap().replace("\"service\":\"pay\"", "\"service\":\"big\"");
        fixture.put_raw(vec![(key("big", big.id()), value.into_bytes())]).await;
    }
    let backend = ETCD.connect(fixture.server.address());
    let (many, big) = (backend.watch("pay"), backend.watch("big"));
    let first = many.ready(Duration::from_secs(5)).await.unwrap();
    assert_eq!((first.len(), first.unreadable()), (10_000, 0));
    assert_eq!(big.ready(Duration::from_secs(10)).await.unwrap().len(), 60);
    fixture.delete_raw(&key("pay", "00007")).await;
    eventually(Duration::from_secs(3), "a later change", async || match many.latest() {
        Some(set) if set.len() == 9_999 => Ok(()),
        other => Err(other.map(|set| set.len())),
    })
    .await;
    // Ten thousand that leave at once are one answer of several MiB.
    fixture
        .client()
        .await
        .kv_client()
        .delete(space.service_prefix("pay"), Some(etcd_client::DeleteOptions::new().with_prefix()))
        .await
        .unwrap();
    eventually(Duration::from_secs(5), "everybody to leave", async || match many.latest() {
        Some(set) if set.is_empty() => Ok(()),
        other => Err(other.map(|set| set.len())),
    })
    .await;
}

/// While the set is read in pages, one instance of an early page and then one of a late page are changed, over and over: a set that
/// mixed two revisions would show the late change without the early one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l04_w02_pages_are_of_one_revision() {
    let Some(fixture) = EtcdFixture::start().await else { return };
    let space = KeySpace::new("").unwrap();
    let record = |id: &str, weight: u32| {
        let instance = large(id, 500).to_builder().weight(weight).build().unwrap();
        (space.key(&instance.key()), encode(&instance))
    };
    fixture.put_raw((0..2_000).map(|n| record(&format!("{n:05}"), 1)).collect()).await;
    let backend = ETCD.connect(fixture.server.address());
    let mut kv = fixture.client().await.kv_client();
    let records: Vec<_> =
        (2..).flat_map(|weight| ["00000", "01999"].map(|id| record(id, weight))).take(20_000).collect();
    let writer = tokio::spawn(async move {
        for (key, value) in records {
            kv.put(key, value, None).await.unwrap();
        }
    });
    let weight = |set: &discovery_core::Snapshot, id: &str| set.get(id).unwrap().weight();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        // Nobody else watches, so each first set is read anew.
        let set = backend.snapshot("pay", Duration::from_secs(5)).await.unwrap();
        let (early, late) = (weight(&set, "00000"), weight(&set, "01999"));
        assert!(early == late || early == late + 1, "early {early}, late {late}");
        seen.insert(early);
    }
    assert!(seen.len() > 10, "the writer was too slow: {seen:?}");
    writer.abort();
}

/// A record of two megabytes is refused at once, and others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f17_a_record_above_the_limit_is_refused_at_once() {
    let Some(fixture) = EtcdFixture::start().await else { return };
    let backend = ETCD.connect(fixture.server.address());
    // Nobody is asked: this server would not answer.
    fixture.server.freeze().unwrap();
    let error = backend.register(large("a", 2_000_000), RegisterOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    fixture.server.thaw().unwrap();
    backend.register(large("b", 10), RegisterOptions::default()).await.unwrap();
}

/// A server out of space is said to be so; what is registered is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r11_a_full_server_is_named() {
    if !Etcd::available().expect("etcd, which CI requires") {
        return;
    }
    let options = EtcdOptions::default().with_args(["--quota-backend-bytes", "1000000"]);
    let server = Etcd::start_with(options).await.unwrap();
    let backend = ETCD.connect(server.address());
    let kept = backend.register(large("kept", 10), RegisterOptions::default()).await.unwrap();
    let filler = vec![b'x'; 500_000];
    let mut full = false;
    for n in 0..20 {
        full |= server.ctl_stdin(&["put", &format!("/filler/{n}")], &filler).await.is_err();
    }
    assert!(full, "the server took everything");
    let options = RegisterOptions::default().with_deadline(Duration::from_secs(2));
    let error = backend.register(large("late", 10), options).await.unwrap_err();
    assert!(error.message().contains("space"), "{error}");
    assert!(kept.state().is_registered());
    let set = backend.snapshot("pay", Duration::from_secs(3)).await.unwrap();
    assert!(set.get("kept").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l02_ten_thousand_services_survive_a_restart() {
    let Some(fixture) = EtcdFixture::start().await else { return };
    cases::ten_thousand_services_survive_a_restart(ETCD, &fixture, fixture.server.socket_address()).await;
}
