//! F16: a killed process is gone in time, whatever else the server holds and without expired-key events.

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use discovery_core::conformance::{Fixture, eventually, stays};
use discovery_core::{Key, KeySpace};
use discovery_harness::ServerProcess;
use discovery_harness::cases::{register, shows};
use tokio::time::{Instant, interval, timeout_at};

use crate::fixture::RedisFixture;
use crate::stage::{open, policy};

const SOON: Duration = Duration::from_secs(3);

/// How a process of this test binary is told that it is a provider: where it registers, and as whom.
const PROVIDER: &str = "DISCOVERY_TEST_PROVIDER";

/// No test by itself: the process that the next one starts from this binary, and kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f16_a_provider_to_be_killed() {
    let Ok(task) = std::env::var(PROVIDER) else { return };
    let (url, id) = task.split_once(' ').expect("a URL and an id");
    let backend = open(url);
    let _held = register(&backend, "pay", id).await;
    std::future::pending::<()>().await;
}

/// Ten processes end by SIGKILL among ten thousand other keys with a TTL: each is gone in time, and nobody reads all keys to find out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f16_r03_a_killed_provider_is_gone_among_ten_thousand_keys() {
    let Some(fixture) = RedisFixture::start().await else { return };
    fixture.server.cli(&["CONFIG", "SET", "notify-keyspace-events", ""]).await.unwrap();
    let others: String = (0..10_000).map(|n| format!("SET other:{n} x EX 3600\r\n")).collect();
    fixture.server.cli_stdin(&["--pipe"], others.as_bytes()).await.unwrap();
    fixture.server.cli(&["CONFIG", "RESETSTAT"]).await.unwrap();
    let (living, reader) = (fixture.handle(), fixture.handle());
    let _b = register(&living, "pay", "b").await;
    let mut watch = reader.watch("pay");
    shows(&watch, SOON, &["b"]).await;
    let (folder, url) = (tempfile::tempdir().unwrap(), format!("redis://{}", fixture.server.address()));
    let mut processes: Vec<_> = (0..10)
        .map(|n| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "expiry::f16_a_provider_to_be_killed", "--nocapture"]);
            command.env(PROVIDER, format!("{url} a{n}"));
            ServerProcess::spawn(&command, &folder.path().join(format!("a{n}"))).unwrap()
        })
        .collect();
    let all: Vec<_> = (0..10).map(|n| format!("a{n}")).chain(["b".to_owned()]).collect();
    shows(&watch, Duration::from_secs(20), &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // At different moments between two renewals.
    let end = Instant::now() + Duration::from_secs(20);
    let mut kills = interval(policy().ttl / 10);
    let (mut killed, mut delays) = (HashMap::new(), HashMap::new());
    while delays.len() < 10 {
        tokio::select! {
            _ = kills.tick(), if !processes.is_empty() => {
                let (process, at) = (processes.pop().unwrap(), Instant::now());
                process.kill().unwrap();
                killed.insert(format!("a{}", processes.len()), at);
            }
            set = timeout_at(end, watch.changed()) => {
                let set = set.expect("all to be gone").unwrap();
                assert!(set.get("b").is_some() && set.freshness().is_live(), "the living was removed: {set:?}");
                for n in (0..10).filter(|n| set.get(&format!("a{n}")).is_none()) {
                    let id = format!("a{n}");
                    let at = killed.get(&id).unwrap_or_else(|| panic!("{id} lives and was removed"));
                    delays.entry(id).or_insert_with(|| at.elapsed());
                }
            }
        }
    }
    let slowest = delays.values().max().unwrap();
    println!("the slowest of ten was gone {slowest:?} after its end, with a TTL of {:?}", policy().ttl);
    assert!(*slowest <= policy().ttl + Duration::from_secs(1), "{delays:?}");
    let commands = fixture.server.cli(&["INFO", "commandstats"]).await.unwrap();
    assert!(commands.contains("cmdstat_evalsha"), "{commands}");
    for whole in ["cmdstat_keys", "cmdstat_scan", "cmdstat_hgetall", "cmdstat_smembers"] {
        assert!(!commands.contains(whole), "{commands}");
    }
}

/// The last record of a service expires while nobody watches the service: the list of services loses it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r03_the_list_of_services_loses_who_expired() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let reader = fixture.handle();
    let names = reader.watch_services();
    let (dying, link) = fixture.open("", policy()).await.unwrap();
    let _held = (register(&dying, "pay", "a").await, register(&dying, "ship", "a").await);
    let _other = register(&reader, "ship", "b").await;
    let lists = async |expected: &[&str], limit: Duration| {
        eventually(limit, &format!("the services {expected:?}"), async || match names.latest() {
            Some(list) if list.names().iter().map(|name| &**name).eq(expected.iter().copied()) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    };
    lists(&["pay", "ship"], SOON).await;
    // Longer than a TTL: who is renewed stays listed.
    stays(policy().ttl + Duration::from_secs(1), "the list", async || match names.latest() {
        Some(list) if list.names().len() == 2 && list.freshness().is_live() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    link.cut().await;
    lists(&["ship"], policy().ttl + Duration::from_secs(1)).await;
    // Whoever comes when nobody has looked for a while is told the truth as well.
    drop(names);
    let (dying, link) = fixture.open("", policy()).await.unwrap();
    let _held = register(&dying, "late", "a").await;
    link.cut().await;
    let key = KeySpace::new("").unwrap().key(&Key { service: "late".into(), id: "a".into() });
    eventually(policy().ttl + Duration::from_secs(1), "the record to expire", async || {
        if fixture.get_raw(&key).await.is_none() { Ok(()) } else { Err("it is there") }
    })
    .await;
    let list = reader.services(SOON).await.unwrap();
    assert!(!list.names().contains("late"), "{list:?}");
}

/// A watch that is closed does not silence one that is opened at the same moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w02_a_watch_opened_as_another_closes_hears_everything() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let (backend, writer) = (fixture.handle(), fixture.handle());
    let mut held = Vec::new();
    for round in 0..100 {
        let service = format!("s{}", round % 5);
        for _ in 0..3 {
            backend.watch(&service).ready(SOON).await.unwrap();
        }
        let mut watch = backend.watch(&service);
        watch.ready(SOON).await.unwrap();
        let id = format!("{round}");
        held.push(register(&writer, &service, &id).await);
        // Long before any reconciliation, and never through a gap.
        let end = Instant::now() + Duration::from_millis(500);
        while watch.latest().is_none_or(|set| set.get(&id).is_none()) {
            tokio::time::timeout_at(end, watch.changed()).await.expect("the change was not heard").unwrap();
        }
        assert!(watch.freshness().is_live(), "{:?}", watch.freshness());
    }
    // And what nobody watches is not sent.
    eventually(SOON, "the channels to be left", async || {
        let channels = fixture.server.cli(&["PUBSUB", "CHANNELS"]).await.unwrap();
        if channels.trim().is_empty() { Ok(()) } else { Err(channels) }
    })
    .await;
}

/// What is over leaves nothing behind but counters that expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l04_a_service_that_is_gone_leaves_nothing() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let backend = fixture.handle();
    for n in 0..20 {
        register(&backend, &format!("s{n}"), "a").await.deregister().await.unwrap();
    }
    let operator = fixture.operator().await;
    let keys: Vec<String> = operator.ask(&[b"KEYS", b"*"]).await;
    for key in &keys {
        assert!(key.ends_with(":version"), "{key} is left");
        let ttl: i64 = operator.ask(&[b"TTL", key.as_bytes()]).await;
        assert!((3_000..=3_700).contains(&ttl), "{key} lives for {ttl} s");
    }
    assert_eq!(keys.len(), 21);
}

/// The article's other fault: a change is seen without polling, in well under 50 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w02_an_added_instance_is_seen_at_once() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let (backend, reader) = (fixture.handle(), fixture.handle());
    let mut watch = reader.watch("pay");
    shows(&watch, SOON, &[]).await;
    let (mut held, mut delays) = (Vec::new(), Vec::new());
    for n in 0..20 {
        let begun = Instant::now();
        let id = format!("{n}");
        held.push(register(&backend, "pay", &id).await);
        while watch.latest().is_none_or(|set| set.get(&id).is_none()) {
            watch.changed().await.unwrap();
        }
        delays.push(begun.elapsed());
    }
    delays.sort();
    println!("registered and seen in {:?} (median of 20), {:?} at most", delays[10], delays[19]);
    assert!(delays[10] < Duration::from_millis(50), "{delays:?}");
}
