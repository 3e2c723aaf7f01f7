//! A master is lost under Sentinels and in a Cluster: registrations hold or come back, and sets converge.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::conformance::{eventually, stays};
use discovery_core::{Backend, ErrorKind, Registration, Watch};
use discovery_harness::cases::{holds, ids, register, shows};
use discovery_harness::{Redis, RedisCluster, RedisSentinel};
use tokio::time::Instant;

use crate::stage::{SETTLE, open};

/// Longer than the servers take to agree on a new master, and SETTLE.
const FAILOVER: Duration = Duration::from_secs(10 + 8);

/// Registers two instances, and watches them from another handle.
async fn scene(url: &str, service: &str) -> ([Arc<dyn Backend>; 2], [Registration; 2], Watch) {
    let handles = [open(url), open(url)];
    let held = [register(&handles[0], service, "a").await, register(&handles[0], service, "b").await];
    let watch = handles[1].watch(service);
    shows(&watch, SETTLE, &["a", "b"]).await;
    (handles, held, watch)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_the_master_under_sentinels_is_lost() {
    if !Redis::available().unwrap() || !discovery_harness::available("redis-sentinel").unwrap() {
        return;
    }
    let pair = RedisSentinel::start().await.unwrap();
    let url = format!("redis+sentinel://{}/{}/prod", pair.addresses(), pair.name());
    let (handles, [a, b], watch) = scene(&url, "pay").await;
    let [master, replica] = pair.servers();
    let lost = Instant::now();
    master.kill().unwrap();
    eventually(SETTLE, "the outage", async || if watch.freshness().is_stale() { Ok(()) } else { Err(()) }).await;
    let after = shows(&watch, FAILOVER, &["a", "b"]).await;
    println!("the set is live again {:?} after the master was lost", lost.elapsed());
    assert_eq!(after.len(), 2);
    holds(&a, FAILOVER).await;
    holds(&b, FAILOVER).await;
    let c = register(&handles[0], "pay", "c").await;
    shows(&watch, SETTLE, &["a", "b", "c"]).await;
    assert!(replica.cli(&["GET", "{/prod/pay}/c"]).await.unwrap().contains("\"id\":\"c\""));
    // The old master comes back as a replica, and nobody is misled.
    master.start_again().await.unwrap();
    eventually(FAILOVER, "the old master to follow", async || match master.cli(&["INFO", "replication"]).await {
        Ok(said) if said.contains("role:slave") => Ok(()),
        other => Err(other),
    })
    .await;
    c.deregister().await.unwrap();
    shows(&watch, SETTLE, &["a", "b"]).await;
    assert!(a.state().is_registered() && b.state().is_registered());
}

/// The Sentinels have accounts of their own, whose passwords are rotated like others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_a_rotated_password_of_the_sentinels_is_read_anew() {
    if !Redis::available().unwrap() || !discovery_harness::available("redis-sentinel").unwrap() {
        return;
    }
    let pair = RedisSentinel::start().await.unwrap();
    for (user, password) in [("app", ">old-secret"), ("root", ">root-secret")] {
        pair.cli(&["ACL", "SETUSER", user, "on", password, "+@all", "~*", "&*"]).await.unwrap();
    }
    // Sentinels that know each other already stay connected.
    pair.cli(&["ACL", "SETUSER", "default", "resetpass"]).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "old-secret\n").unwrap();
    let plain = format!("redis+sentinel://{}/{}/prod", pair.addresses(), pair.name());
    let url = format!("{plain}?sentinel_user=app&sentinel_password_file={}", file.display());
    let (_handles, held, watch) = scene(&url, "pay").await;
    let refused = async |watch: &Watch| {
        eventually(SETTLE, "the refusal", async || match watch.freshness().cause().map(discovery_core::Error::kind) {
            Some(ErrorKind::PermissionDenied | ErrorKind::Unauthenticated) => Ok(()),
            _ => Err(watch.freshness()),
        })
        .await;
    };
    refused(&open(&plain).watch("pay")).await;

    let root = ["--no-auth-warning", "--user", "root", "--pass", "root-secret"];
    pair.cli(&[&root[..], &["ACL", "SETUSER", "app", "resetpass", ">new-secret"]].concat()).await.unwrap();
    pair.servers()[0].cli(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    pair.servers()[0].cli(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
    refused(&watch).await;
    assert_eq!(watch.latest().unwrap().len(), 2);
    std::fs::write(&file, "new-secret\n").unwrap();
    shows(&watch, FAILOVER, &["a", "b"]).await;
    for registration in &held {
        holds(registration, FAILOVER).await;
    }
}

/// Each service lies on one of the masters; some are on the one that is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_master_of_a_cluster_is_lost_and_replaced() {
    if !Redis::available().unwrap() {
        return;
    }
    let cluster = RedisCluster::start_with_replicas().await.unwrap();
    let url = format!("redis+cluster://{}", cluster.addresses());
    let (handles, held, pay) = scene(&url, "pay").await;
    let services: Vec<_> = (0..12).map(|n| format!("s{n}")).collect();
    let mut registrations = Vec::from(held);
    for service in &services {
        registrations.push(register(&handles[0], service, "a").await);
    }
    let watches: Vec<_> = services.iter().map(|service| handles[1].watch(service)).collect();
    let names = handles[1].watch_services();
    for watch in &watches {
        shows(watch, SETTLE, &["a"]).await;
    }
    let lost = cluster.master_of("{/discovery/pay}").await.unwrap();
    let begun = Instant::now();
    lost.kill().unwrap();
    eventually(SETTLE, "the outage", async || if pay.freshness().is_stale() { Ok(()) } else { Err(()) }).await;
    shows(&pay, FAILOVER, &["a", "b"]).await;
    println!("the lost master's services are live again after {:?}", begun.elapsed());
    for registration in &registrations {
        holds(registration, FAILOVER).await;
    }
    for watch in &watches {
        shows(watch, FAILOVER, &["a"]).await;
    }
    println!("everything holds again {:?} after a master was lost", begun.elapsed());
    register(&handles[0], "pay", "late").await.deregister().await.unwrap();
    eventually(SETTLE, "the list of services", async || match names.latest() {
        Some(list) if list.names().len() == 13 && list.freshness().is_live() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    stays(Duration::from_secs(4), "every registration", async || {
        let lost = registrations.iter().map(Registration::state).find(|state| !state.is_registered());
        lost.map_or(Ok(()), Err)
    })
    .await;
}

/// Without a replica the lost master's services wait for it, and the others go on: no request hangs on the dead one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_master_of_a_cluster_is_lost_and_comes_back() {
    if !Redis::available().unwrap() {
        return;
    }
    let cluster = RedisCluster::start().await.unwrap();
    let url = format!("redis+cluster://{}", cluster.addresses());
    let lost = cluster.master_of("{/discovery/pay}").await.unwrap();
    let mut elsewhere = None;
    for n in 0..20 {
        let service = format!("s{n}");
        if cluster.master_of(&format!("{{/discovery/{service}}}")).await.unwrap().address() != lost.address() {
            elsewhere = Some(service);
            break;
        }
    }
    let elsewhere = elsewhere.unwrap();
    let (handles, [a, b], watch) = scene(&url, "pay").await;
    let other = handles[1].watch(&elsewhere);
    shows(&other, SETTLE, &[]).await;
    lost.kill().unwrap();
    eventually(SETTLE, "the outage", async || if watch.freshness().is_stale() { Ok(()) } else { Err(()) }).await;
    shows(&other, SETTLE, &[]).await;
    let begun = Instant::now();
    let c = register(&handles[0], &elsewhere, "c").await;
    shows(&other, SETTLE, &["c"]).await;
    println!("another service took a registration {:?} after a master was lost", begun.elapsed());
    assert_eq!(
        watch.latest().map(|set| ids(&set)),
        Some(vec!["a".to_owned(), "b".to_owned()]),
        "the outage emptied a set"
    );
    stays(Duration::from_secs(5), "the other service", async || match other.latest() {
        Some(set) if set.freshness().is_live() && ids(&set) == ["c"] => Ok(()),
        other => Err(other),
    })
    .await;
    lost.start_again().await.unwrap();
    shows(&watch, FAILOVER, &["a", "b"]).await;
    for registration in [&a, &b, &c] {
        holds(registration, FAILOVER).await;
    }
}
