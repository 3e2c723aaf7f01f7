//! What Redis limits: its memory; and the size to plan for.

use std::time::Duration;

use discovery_core::conformance::{Fixture, eventually, stays};
use discovery_core::{Key, KeySpace, RegisterOptions, Watch, encode};
use discovery_harness::cases::{self, instance, large, register, shows};

use crate::fixture::{REDIS, RedisFixture};

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
    let backend = fixture.handle();
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
            let watch = fixture.handle().watch("pay");
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

/// Records that together weigh more than a server keeps for a subscriber, also where the first ones do not let expect it: they are read,
/// again and again, while another service of the same handle stays live. What is longer than a record may be is skipped and counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l04_w06_heavy_records_are_read_and_disturb_nobody() {
    let Some(fixture) = RedisFixture::start().await else { return };
    // A hundred megabytes on a slow disk would hold up the server, and others.
    fixture.server.cli(&["CONFIG", "SET", "appendonly", "no"]).await.unwrap();
    let limits = fixture.server.cli(&["CONFIG", "GET", "client-output-buffer-limit"]).await.unwrap();
    assert!(limits.contains("pubsub 33554432 8388608 60"), "the limit is not the default: {limits}");
    let space = KeySpace::new("").unwrap();
    let operator = fixture.operator().await;
    for (service, records) in [("heavy", vec![(45, 900_000)]), ("mixed", vec![(50, 100), (400, 100_000)])] {
        for (n, (count, weight)) in records.into_iter().enumerate() {
            for i in 0..count {
                let heavy = instance(service, &format!("{n}-{i:03}")).to_builder();
                let heavy = heavy.metadata("padding", "x".repeat(weight)).build().unwrap();
                operator.put(&[(space.key(&heavy.key()), encode(&heavy))]).await;
            }
        }
    }
    operator.put(&[(space.key(&Key { service: "mixed".into(), id: "vast".into() }), vec![b'x'; 34_000_000])]).await;
    let backend = fixture.handle();
    let _held = register(&backend, "light", "a").await;
    let mut light = backend.watch("light");
    shows(&light, Duration::from_secs(3), &["a"]).await;
    let calm = async {
        while let Some(set) = light.changed().await {
            assert!(set.freshness().is_live(), "another service was disturbed: {:?}", set.freshness());
        }
    };
    let reading = async {
        for _ in 0..2 {
            let watches = [backend.watch("heavy"), backend.watch("mixed")];
            for (watch, expected) in watches.iter().zip([(45, 0), (450, 1)]) {
                shows_count(watch, expected).await;
            }
            // Told to everybody who listens, and longer than the server keeps for any of them.
            let key = Key { service: "mixed".into(), id: "vast".into() };
            operator.put(&[(space.key(&key), vec![b'y'; 34_000_000])]).await;
            shows_count(&watches[1], (450, 1)).await;
        }
    };
    tokio::select! {
        () = calm => panic!("the watch ended"),
        () = reading => {}
    }
}

/// Values of many megabytes under keys of records: what they weigh is not transferred, neighbours are read, and another service of
/// the same handle stays live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l04_w06_what_is_vast_is_not_read() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let server = &fixture.server;
    server.cli(&["CONFIG", "SET", "appendonly", "no"]).await.unwrap();
    let backend = fixture.handle();
    let (_light, _held) = (register(&backend, "light", "a").await, register(&backend, "vast", "a").await);
    let mut light = backend.watch("light");
    shows(&light, Duration::from_secs(3), &["a"]).await;
    let write = "redis.call('SETRANGE', KEYS[1] .. '/' .. ARGV[1], 30000000, 'x')
        redis.call('ZADD', KEYS[1] .. ':index', 'inf', ARGV[1])
        redis.call('ZADD', KEYS[1] .. ':revisions', string.format('%.0f', redis.call('INCR', KEYS[1] .. ':version')), ARGV[1])";
    // One at a time, as the server does nothing else meanwhile.
    for id in ["v1", "v2", "v3", "v4", "v5", "v6"] {
        server.cli(&["EVAL", write, "1", "{/discovery/vast}", id]).await.unwrap();
    }
    shows(&light, Duration::from_secs(3), &["a"]).await;
    let sent = async || {
        let all = server.cli(&["INFO", "stats"]).await.unwrap();
        let line = all.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")).unwrap().trim().to_owned();
        line.parse::<u64>().unwrap()
    };
    let before = sent().await;
    let calm = async {
        while let Some(set) = light.changed().await {
            assert!(set.freshness().is_live(), "another service was disturbed: {:?}", set.freshness());
        }
    };
    let reading = async { shows_count(&backend.watch("vast"), (1, 6)).await };
    tokio::select! {
        () = calm => panic!("the watch ended"),
        () = reading => {}
    }
    // Of 180 MB: what is taken before it is given up, what was in flight then, and a mebibyte of each.
    let sent = sent().await - before;
    assert!(sent < 120_000_000, "{sent} bytes were sent");
}

async fn shows_count(watch: &Watch, expected: (usize, usize)) {
    eventually(Duration::from_secs(15), "the set", async || match watch.latest() {
        Some(set) if (set.len(), set.unreadable()) == expected && set.freshness().is_live() => Ok(()),
        other => Err((other.map(|set| (set.len(), set.unreadable())), watch.freshness())),
    })
    .await;
}

/// A server out of memory is said to be so; what is registered is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r11_a_full_server_is_named() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let (server, backend) = (&fixture.server, fixture.handle());
    let kept = register(&backend, "pay", "kept").await;
    // Less than an empty server needs.
    server.cli(&["CONFIG", "SET", "maxmemory", "100kb"]).await.unwrap();
    assert!(server.cli(&["SET", "filler", "x"]).await.is_err(), "the server has room");
    let options = RegisterOptions::default().with_deadline(Duration::from_secs(2));
    let error = backend.register(instance("pay", "late"), options).await.unwrap_err();
    assert!(error.message().contains("memory"), "{error}");
    // Renewals need no memory worth the name, so what is there stays.
    stays(Duration::from_secs(4), "what is there", async || {
        if kept.state().is_registered() { Ok(()) } else { Err(kept.state()) }
    })
    .await;
    assert!(backend.snapshot("pay", Duration::from_secs(3)).await.unwrap().get("kept").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l02_ten_thousand_services_survive_a_restart() {
    let Some(fixture) = RedisFixture::start().await else { return };
    cases::ten_thousand_services_survive_a_restart(REDIS, &fixture, fixture.server.socket_address()).await;
}
