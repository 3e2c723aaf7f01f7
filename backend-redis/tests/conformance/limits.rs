//! What Redis limits: its memory; and the size to plan for.

use std::time::Duration;

use discovery_core::conformance::{Fixture, eventually};
use discovery_core::{Instance, Key, KeySpace, RegisterOptions, RegistryUrl, encode};
use discovery_harness::Redis;

use crate::fixture::{RedisFixture, installed};
use crate::stage::{instance, open, register};

fn large(id: &str, bytes: usize) -> Instance {
    let builder = Instance::builder("pay").id(id).endpoint("grpc://127.0.0.1:9000");
    builder.metadata("padding", "x".repeat(bytes)).build().unwrap()
}

/// Thousands of kibibytes that change while they are read, and records of a mebibyte: all are read whole and followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l04_w02_large_sets_are_read_while_they_change() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let space = KeySpace::new("").unwrap();
    let key = |id: &str| space.key(&Key { service: "pay".into(), id: id.into() });
    let records: Vec<_> =
        (0..10_000).map(|n| large(&format!("{n:05}"), 1_024)).map(|i| (key(i.id()), encode(&i))).collect();
    fixture.put_raw(records).await;
    fixture
        .put_raw((0..10).map(|n| large(&format!("big-{n}"), 1_000_000)).map(|i| (key(i.id()), encode(&i))).collect())
        .await;
    let backend = open(&format!("redis://{}", fixture.server.address()));
    let operator = fixture.operator().await;
    let churn = async {
        for n in 0..500 {
            operator.delete(&key(&format!("{n:05}"))).await;
            let changed = large(&format!("{:05}", 9_999 - n), 10);
            operator.put(&[(key(changed.id()), encode(&changed))]).await;
        }
    };
    let mut watches = Vec::new();
    let reading = async {
        for _ in 0..5 {
            let watch = open(&format!("redis://{}", fixture.server.address())).watch("pay");
            watch.ready(Duration::from_secs(10)).await.unwrap();
            watches.push(watch);
        }
    };
    tokio::join!(churn, reading);
    watches.push(backend.watch("pay"));
    for watch in &watches {
        eventually(Duration::from_secs(10), "the set to be the server's", async || match watch.latest() {
            Some(set) if (set.len(), set.unreadable()) == (9_510, 0) && set.freshness().is_live() => Ok(()),
            other => Err(other.map(|set| (set.len(), set.unreadable()))),
        })
        .await;
    }
}

/// A server out of memory is said to be so; what is registered is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r11_a_full_server_is_named() {
    if !installed() {
        return;
    }
    let server = Redis::start().await.unwrap();
    let backend = open(&format!("redis://{}", server.address()));
    let kept = register(&backend, "pay", "kept").await;
    // Less than an empty server needs.
    server.cli(&["CONFIG", "SET", "maxmemory", "100kb"]).await.unwrap();
    assert!(server.cli(&["SET", "filler", "x"]).await.is_err(), "the server has room");
    let options = RegisterOptions::default().with_deadline(Duration::from_secs(2));
    let error = backend.register(instance("pay", "late"), options).await.unwrap_err();
    assert!(error.message().contains("memory"), "{error}");
    // Renewals need no memory worth the name, so what is there stays.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(kept.state().is_registered(), "{:?}", kept.state());
    assert!(backend.snapshot("pay", Duration::from_secs(3)).await.unwrap().get("kept").is_some());
}

/// The size to plan for: a thousand registrations and ten thousand watched services on one handle survive a restart of the store
/// without a write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l02_ten_thousand_services_survive_a_restart() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let url: RegistryUrl = format!("redis://{}?ttl=30s&backoff=2s", fixture.server.address()).parse().unwrap();
    let backend = discovery_redis::connect(&url).unwrap();
    let begun = tokio::time::Instant::now();
    let mut registering = tokio::task::JoinSet::new();
    for n in 0..1_000 {
        let (backend, instance) = (backend.clone(), instance(&format!("s{n}"), "a"));
        registering.spawn(async move { backend.register(instance, RegisterOptions::default()).await.unwrap() });
    }
    let held = registering.join_all().await;
    let registered = begun.elapsed();
    let watches: Vec<_> = (0..10_000).map(|n| backend.watch(&format!("s{n}"))).collect();
    for watch in &watches {
        watch.ready(Duration::from_secs(60)).await.unwrap();
    }
    println!("1,000 registrations in {registered:?}, then 10,000 sets in {:?}", begun.elapsed() - registered);
    let revision = fixture.revision().await;
    fixture.restart().await;
    let begun = tokio::time::Instant::now();
    eventually(Duration::from_secs(60), "everything to hold again", async || {
        let live = watches.iter().filter(|watch| watch.freshness().is_live()).count();
        let registered = held.iter().filter(|registration| registration.state().is_registered()).count();
        if (live, registered) == (10_000, 1_000) { Ok(()) } else { Err((live, registered)) }
    })
    .await;
    println!("everything holds again {:?} after the restart", begun.elapsed());
    assert_eq!(fixture.revision().await, revision, "something that survived was written");
    assert!(watches.iter().take(1_000).all(|watch| watch.latest().is_some_and(|set| set.len() == 1)));
}
