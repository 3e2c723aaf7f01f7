//! The connection that sets are read on: refused, silent, slow, or to another server than the first.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use discovery_core::conformance::{Fixture, eventually, stays};
use discovery_core::{ErrorKind, Key, KeySpace, RegistryUrl, encode};
use discovery_harness::cases::{ids, instance, large, register, shows};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::RedisFixture;
use crate::stage::{SETTLE, open};

fn key(service: &str, id: &str) -> String {
    KeySpace::new("").unwrap().key(&Key { service: service.into(), id: id.into() })
}

/// One address before several servers: says for each connection where it goes, beginning with 1, or that it goes nowhere. Of the answers
/// so many bytes a second come through. Ends with the test's runtime.
async fn balancer(
    target: impl Fn(usize) -> Option<SocketAddr> + Send + Sync + 'static,
    rate: Option<u32>,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((client, _)) = listener.accept().await {
            match target(counted.fetch_add(1, Ordering::SeqCst) + 1) {
                Some(server) => _ = tokio::spawn(carry(client, server, rate)),
                None => silent.push(client),
            }
        }
    });
    (address, count)
}

async fn carry(client: TcpStream, server: SocketAddr, rate: Option<u32>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let up = async { _ = tokio::io::copy(&mut from_client, &mut to_server).await };
    let down = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if let Some(rate) = rate {
                tokio::time::sleep(Duration::from_secs_f64(length as f64 / f64::from(rate))).await;
            }
            if to_client.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! { () = up => {}, () = down => {} }
}

/// The server takes one connection and no other: however many sets are wanted, it is not asked for another one more often than a handle
/// may, the error says what to do, and all sets are there once it takes one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_a_refused_second_connection_is_not_hammered() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let operator = fixture.operator().await;
    operator.ask::<String>(&[b"CONFIG", b"SET", b"maxclients", b"2"]).await;
    let url: RegistryUrl = format!("redis://{}", fixture.server.address()).parse().unwrap();
    let backend = discovery_redis::connect(&url).unwrap();
    let watches: Vec<_> = (0..200).map(|n| backend.watch(&format!("s{n}"))).collect();
    let rejected = async || {
        let info = operator.ask::<String>(&[b"INFO", b"stats"]).await;
        let line = info.lines().find_map(|line| line.strip_prefix("rejected_connections:")).unwrap().to_owned();
        line.trim().parse::<u32>().unwrap()
    };
    eventually(SETTLE, "all watches to say why they have no set", async || {
        let told = watches.iter().filter_map(|watch| watch.freshness().cause().cloned());
        match told.filter(|cause| cause.message().contains("raise maxclients")).count() {
            200 => Ok(()),
            told => Err(told),
        }
    })
    .await;
    // With the default policy: a fifth of a second, doubled up to ten, so thirty in the first minute, of which this is a part.
    stays(Duration::from_secs(8), "a bounded number of tries", async || {
        let tries = rejected().await;
        if tries <= 20 { Ok(()) } else { Err(tries) }
    })
    .await;
    operator.ask::<String>(&[b"CONFIG", b"SET", b"maxclients", b"100"]).await;
    eventually(Duration::from_secs(25), "all sets", async || {
        let live = watches.iter().filter(|watch| watch.freshness().is_live()).count();
        if live == 200 { Ok(()) } else { Err(live) }
    })
    .await;
}

/// The server takes the second connection and never answers it: every watch says so within its deadline, not one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w13_a_silent_second_connection_is_said_to_all() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let server = fixture.server.socket_address();
    let (address, _) = balancer(move |number| (number == 1).then_some(server), None).await;
    let backend = open(&format!("redis://{address}"));
    let watches: Vec<_> = (0..60).map(|n| backend.watch(&format!("s{n}"))).collect();
    // Twice the deadline of a request, and a moment.
    eventually(Duration::from_secs(5), "all watches to say why they have no set", async || {
        let cause = |watch: &discovery_core::Watch| watch.freshness().cause().map(discovery_core::Error::kind);
        match watches.iter().filter(|watch| cause(watch) == Some(ErrorKind::DeadlineExceeded)).count() {
            60 => Ok(()),
            told => Err((told, watches[0].freshness())),
        }
    })
    .await;
}

/// Behind one address, the second connection leads to a server that lost its master, the third one to the master again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w02_a_second_connection_to_another_server_is_left() {
    let (Some(fixture), Some(other)) = (RedisFixture::start().await, RedisFixture::start().await) else { return };
    let backend = fixture.handle();
    let _a = register(&backend, "pay", "a").await;
    let (one, two) = (fixture.server.socket_address(), other.server.socket_address());
    for replica in [true, false] {
        if replica {
            other.server.cli(&["REPLICAOF", "127.0.0.1", "1"]).await.unwrap();
        } else {
            other.server.cli(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
        }
        let (address, count) = balancer(move |number| Some(if number == 2 { two } else { one }), None).await;
        let watch = open(&format!("redis://{address}")).watch("pay");
        shows(&watch, SETTLE, &["a"]).await;
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }
}

/// A set that takes many times the deadline of a request to come, over a slow link, some of it heavier than was to be expected, comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l04_a_slow_link_is_no_silent_one() {
    let Some(fixture) = RedisFixture::start().await else { return };
    fixture.server.cli(&["CONFIG", "SET", "appendonly", "no"]).await.unwrap();
    let (light, heavy) = ((0..64).map(|n| (n, 10)), (64..76).map(|n| (n, 500_000)));
    let records = light.chain(heavy).map(|(n, bytes)| large(&format!("{n:05}"), bytes));
    fixture.put_raw(records.map(|i| (key("pay", i.id()), encode(&i))).collect()).await;
    fixture.server.cli(&["SETRANGE", "{/discovery/pay}/00000", "2000000", "x"]).await.unwrap();
    let server = fixture.server.socket_address();
    let (address, count) = balancer(move |_| Some(server), Some(1_500_000)).await;
    // Eight megabytes: 5.5 s, with a deadline of a second.
    let watch = open(&format!("redis://{address}")).watch("pay");
    eventually(Duration::from_secs(20), "the set", async || match watch.latest() {
        Some(set) if (set.len(), set.unreadable()) == (75, 1) => Ok(()),
        other => Err((other.map(|set| set.len()), watch.freshness())),
    })
    .await;
    assert_eq!(count.load(Ordering::SeqCst), 2, "it was begun anew");
}

/// A server that closes idle connections costs no reading its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w13_a_second_connection_that_was_closed_is_dialled_again_at_once() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let backend = fixture.handle();
    shows(&backend.watch("a"), SETTLE, &[]).await;
    let operator = fixture.operator().await;
    let list = operator.ask::<String>(&[b"CLIENT", b"LIST"]).await;
    let reader = list.lines().find(|line| line.contains("cmd=evalsha") && line.contains(" sub=0 ")).unwrap();
    let id = reader.split(' ').find_map(|word| word.strip_prefix("id=")).unwrap();
    operator.ask::<i64>(&[b"CLIENT", b"KILL", b"ID", id.as_bytes()]).await;
    let watch = backend.watch("b");
    shows(&watch, SETTLE, &[]).await;
    assert!(watch.freshness().is_live());
}

/// A record that was made something else than a string by hand: its neighbours keep their lease, and its owner repairs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_what_is_no_string_is_repaired_and_stops_nobody() {
    let Some(fixture) = RedisFixture::start().await else { return };
    let (backend, reader) = (fixture.handle(), fixture.handle());
    let names = ["a", "b", "c", "d"];
    let mut held = Vec::new();
    for id in names {
        held.push(register(&backend, "pay", id).await);
    }
    let watch = reader.watch("pay");
    shows(&watch, SETTLE, &names).await;
    fixture.server.cli(&["DEL", "{/discovery/pay}/b"]).await.unwrap();
    fixture.server.cli(&["RPUSH", "{/discovery/pay}/b", "x"]).await.unwrap();
    eventually(SETTLE, "the repair", async || {
        let set = watch.latest().unwrap();
        assert!(["a", "c", "d"].iter().all(|id| set.get(id).is_some()), "{:?}", ids(&set));
        assert!([0, 2, 3].iter().all(|at: &usize| held[*at].state().is_registered()));
        match fixture.server.cli(&["TYPE", "{/discovery/pay}/b"]).await {
            Ok(kind) if kind.trim() == "string" => Ok(()),
            other => Err(other),
        }
    })
    .await;
    shows(&watch, SETTLE, &names).await;
}

/// The same of a record that is nobody's: it is counted as one that cannot be read, and its set stays live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w06_what_is_no_string_is_counted() {
    let Some(fixture) = RedisFixture::start().await else { return };
    fixture.put_raw(["a", "b"].map(|id| (key("pay", id), encode(&instance("pay", id)))).into()).await;
    fixture.server.cli(&["DEL", "{/discovery/pay}/b"]).await.unwrap();
    fixture.server.cli(&["RPUSH", "{/discovery/pay}/b", "x"]).await.unwrap();
    let watch = fixture.handle().watch("pay");
    watch.ready(SETTLE).await.unwrap();
    // Several reconciliations.
    stays(Duration::from_secs(8), "a live set", async || match watch.latest() {
        Some(set) if (ids(&set), set.unreadable()) == (vec!["a".to_owned()], 1) && set.freshness().is_live() => Ok(()),
        other => Err(other.map(|set| (ids(&set), set.unreadable(), set.freshness().clone()))),
    })
    .await;
}
