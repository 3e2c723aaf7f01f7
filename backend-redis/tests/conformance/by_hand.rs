//! What is done to the server by hand, past the script: it is noticed and repaired.

use std::time::Duration;

use discovery_core::conformance::{Fixture, eventually, stays};
use discovery_core::{Change, Key, KeySpace};
use discovery_harness::cases::{ids, instance, register, shows};

use crate::fixture::{REDIS, RedisFixture};
use crate::stage::{SETTLE, policy};

const SOON: Duration = Duration::from_secs(3);

/// A plain DEL of a record: it is gone from the sets at its owner's next renewal, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_plain_del_is_repaired() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let backend = fixture.handle();
    let _held = (register(&backend, "pay", "a").await, register(&backend, "pay", "b").await);
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a", "b"]).await;
    fixture.server.cli(&["DEL", "{/discovery/pay}/a"]).await.unwrap();
    shows(&watch, SOON, &["b"]).await;
    shows(&watch, SETTLE, &["a", "b"]).await;
}

/// A plain SET over a record, which takes its TTL away: it is seen, repaired, and does not outlive its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_plain_set_is_repaired() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let (backend, reader) = (fixture.handle(), fixture.handle());
    let held = (register(&backend, "pay", "a").await, register(&backend, "pay", "b").await);
    let watch = reader.watch("pay");
    shows(&watch, SOON, &["a", "b"]).await;
    let foreign = instance("pay", "a").to_builder().weight(1).build().unwrap();
    let value = String::from_utf8(discovery_core::encode(&foreign)).unwrap();
    let weight = async |wanted: u32| {
        eventually(SETTLE, "the weight", async || {
            let found = watch.latest().and_then(|set| set.get("a").map(|a| a.weight()));
            if found == Some(wanted) { Ok(()) } else { Err(found) }
        })
        .await;
    };
    fixture.server.cli(&["SET", "{/discovery/pay}/a", &value]).await.unwrap();
    weight(1).await;
    weight(discovery_core::DEFAULT_WEIGHT).await;
    drop((held, backend));
    shows(&watch, SETTLE, &[]).await;
}

/// Records that were written by hand have no owner who would miss them: reconciliation finds those that a plain DEL took away, a page of
/// a thousand each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w08_what_was_written_and_deleted_by_hand_is_gone() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let space = KeySpace::new("").unwrap();
    let records = (0..2_500).map(|n| instance("pay", &format!("{n:04}")));
    let records = records.map(|i| (space.key(&i.key()), discovery_core::encode(&i))).collect();
    fixture.put_raw(records).await;
    fixture
        .put_raw(vec![(space.key(&instance("one", "a").key()), discovery_core::encode(&instance("one", "a")))])
        .await;
    let mut policy = policy();
    policy.reconcile = Duration::from_secs(1);
    let backend = REDIS.open(fixture.server.address(), policy);
    let (pay, one, names) = (backend.watch("pay"), backend.watch("one"), backend.watch_services());
    shows(&one, SOON, &["a"]).await;
    let counts = async |wanted: usize| {
        eventually(SETTLE, "the size of the set", async || match pay.latest() {
            Some(set) if set.len() == wanted && set.freshness().is_live() => Ok(()),
            other => Err(other.map(|set| (set.len(), set.freshness().clone()))),
        })
        .await;
    };
    counts(2_500).await;
    fixture.server.cli(&["DEL", "{/discovery/pay}/0000", "{/discovery/pay}/2499", "{/discovery/one}/a"]).await.unwrap();
    counts(2_498).await;
    shows(&one, SOON, &[]).await;
    eventually(SOON, "the list of services", async || match names.latest() {
        Some(list) if !list.names().contains("one") && list.names().contains("pay") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// FLUSHALL on a living server: registrations come back, sets are held meanwhile and then compared, though nobody was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w02_a_flushed_server_is_filled_again() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let (backend, reader) = (fixture.handle(), fixture.handle());
    let held = (register(&backend, "pay", "a").await, register(&backend, "pay", "b").await);
    let (mut watch, names) = (reader.watch("pay"), reader.watch_services());
    let first = shows(&watch, SOON, &["a", "b"]).await;
    fixture.server.cli(&["FLUSHALL"]).await.unwrap();
    let end = tokio::time::Instant::now() + SETTLE;
    while let Ok(Some(set)) = tokio::time::timeout_at(end, watch.changed()).await {
        assert_eq!(ids(&set), ["a", "b"], "somebody was dropped");
    }
    let after = shows(&watch, SOON, &["a", "b"]).await;
    assert_eq!(after.changes_since(&first), []);
    assert!(held.0.state().is_registered() && held.1.state().is_registered());
    assert!(names.latest().unwrap().names().contains("pay"));
    let space = KeySpace::new("").unwrap();
    assert!(fixture.get_raw(&space.key(&Key { service: "pay".into(), id: "a".into() })).await.is_some());
}

/// SCRIPT FLUSH takes the script away; nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_forgotten_script_is_brought_again() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let backend = fixture.handle();
    let a = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    for _ in 0..3 {
        fixture.server.cli(&["SCRIPT", "FLUSH"]).await.unwrap();
        let b = register(&backend, "pay", "b").await;
        shows(&watch, SOON, &["a", "b"]).await;
        fixture.server.cli(&["SCRIPT", "FLUSH"]).await.unwrap();
        b.deregister().await.unwrap();
        shows(&watch, SOON, &["a"]).await;
    }
    assert!(a.state().is_registered());
}

/// Junk on the channel ends nothing and is read as nothing (F09).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f09_junk_on_the_channel_is_ignored() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let backend = fixture.handle();
    let _a = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    let first = shows(&watch, SOON, &["a"]).await;
    for junk in ["", "hello", "{}", "1 2 delete 0 1\na", "1 99999999999999999999 put 0 1\na", "\u{0}\n\n"] {
        fixture.server.cli_stdin(&["-x", "PUBLISH", "{/discovery/pay}:changes"], junk.as_bytes()).await.unwrap();
    }
    let _b = register(&backend, "pay", "b").await;
    let after = shows(&watch, SOON, &["a", "b"]).await;
    assert!(matches!(after.changes_since(&first).as_slice(), [Change::Added(b)] if b.id() == "b"));
}

/// The README's own lines work with redis-cli.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_commands_write_and_remove() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/registry.lua");
    let backend = fixture.handle();
    let (watch, names) = (backend.watch("orders"), backend.watch_services());
    shows(&watch, SOON, &[]).await;
    let readme = include_str!("../../README.md");
    let lines: Vec<_> = readme.lines().filter_map(|line| line.strip_prefix("redis-cli --eval registry.lua ")).collect();
    assert_eq!(lines.len(), 3);
    for (n, line) in lines.iter().enumerate() {
        let words: Vec<_> = line.split(' ').map(|word| word.trim_matches('\'')).collect();
        fixture.server.cli(&[&["--eval", script], &words[..]].concat()).await.unwrap();
        shows(&watch, SOON, if n < 2 { &["10.0.0.5:9000"] } else { &[] }).await;
        if n == 1 {
            eventually(SOON, "the service", async || match names.latest() {
                Some(list) if list.names().contains("orders") => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await;
            // What was written by hand stays.
            stays(policy().ttl + Duration::from_secs(1), "the record", async || match watch.latest() {
                Some(set) if set.get("10.0.0.5:9000").is_some() && set.freshness().is_live() => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await;
        }
    }
}
