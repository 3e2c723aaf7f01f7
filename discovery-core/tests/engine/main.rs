//! Schedules that broke the engine once, on the in-memory store and paused time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod disk;
mod parts;

use std::sync::Arc;
use std::time::Duration;

use discovery_core::conformance::eventually;
use discovery_core::memory::{MemoryLink, MemoryStore};
use discovery_core::picker::RoundRobin;
use discovery_core::{
    Backend, Balancer, Context, ErrorKind, Instance, Policy, RegisterOptions, Registration, RegistrationState, State,
    Watch, encode,
};
use tokio::time::{Instant, sleep};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn instance(id: &str, weight: u32) -> Instance {
    let builder = Instance::builder("pay").id(id).endpoint("grpc://h:1").weight(weight);
    builder.started_at(std::time::UNIX_EPOCH).build().unwrap()
}

fn path(id: &str) -> String {
    format!("/discovery/pay/{id}")
}

fn put(store: &MemoryStore, id: &str, weight: u32) {
    store.put_raw(&path(id), &encode(&instance(id, weight)));
}

fn opened() -> (MemoryStore, Arc<dyn Backend>, MemoryLink) {
    let store = MemoryStore::new();
    let (backend, link) = store.open("", Policy::default()).unwrap();
    (store, backend, link)
}

async fn registered(backend: &Arc<dyn Backend>, id: &str) -> Registration {
    backend.register(instance(id, 1), RegisterOptions::default()).await.unwrap()
}

fn weights(watch: &Watch) -> Vec<(String, u32)> {
    let set = watch.latest().unwrap();
    set.instances().iter().map(|i| (i.id().to_owned(), i.weight())).collect()
}

async fn converges(watch: &Watch, limit: Duration, expected: &[(&str, u32)]) {
    let expected: Vec<_> = expected.iter().map(|(id, weight)| ((*id).to_owned(), *weight)).collect();
    eventually(limit, "the store's set", async || {
        let seen = weights(watch);
        if seen == expected { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// Reconciliation every 30 s, give or take a quarter, three counts, and the time to read anew.
const RECONCILED: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn w08_a_lost_notification_is_found_behind_later_ones() {
    let (store, backend, _) = opened();
    put(&store, "a", 1);
    put(&store, "b", 1);
    let watch = backend.watch("pay");
    watch.ready(seconds(5)).await.unwrap();
    store.lose_notifications(1);
    put(&store, "a", 2);
    put(&store, "b", 2);
    converges(&watch, RECONCILED, &[("a", 2), ("b", 2)]).await;
    // A removal and an addition at once leave the count as it was.
    store.lose_notifications(2);
    store.delete_raw(&path("a"));
    put(&store, "c", 1);
    put(&store, "b", 3);
    converges(&watch, RECONCILED, &[("b", 3), ("c", 1)]).await;
}

#[tokio::test(start_paused = true)]
async fn w08_a_lost_removal_is_found_however_busy_the_service_is() {
    let (store, backend, _) = opened();
    put(&store, "a", 1);
    put(&store, "b", 1);
    let watch = backend.watch("pay");
    watch.ready(seconds(5)).await.unwrap();
    store.lose_notifications(1);
    store.delete_raw(&path("a"));
    let end = Instant::now() + RECONCILED;
    let mut weight = 1;
    while Instant::now() < end {
        weight += 1;
        put(&store, "b", weight);
        sleep(millis(900)).await;
    }
    converges(&watch, seconds(1), &[("b", weight)]).await;
}

#[tokio::test(start_paused = true)]
async fn w10_doubled_late_and_reordered_notifications_change_nothing() {
    let (store, backend, _) = opened();
    for weight in 1..=5 {
        put(&store, "a", weight);
        put(&store, "b", weight);
    }
    let watch = backend.watch("pay");
    watch.ready(seconds(5)).await.unwrap();
    store.delete_raw(&path("b"));
    put(&store, "a", 6);
    converges(&watch, seconds(1), &[("a", 6)]).await;
    store.replay_notifications(12);
    put(&store, "c", 1);
    converges(&watch, seconds(1), &[("a", 6), ("c", 1)]).await;
    assert!(watch.freshness().is_live());
}

#[tokio::test(start_paused = true)]
async fn w09_what_is_held_stays_until_the_store_has_answered() {
    let (store, backend, link) = opened();
    put(&store, "a", 1);
    put(&store, "b", 1);
    let mut watch = backend.watch("pay");
    watch.ready(seconds(5)).await.unwrap();
    store.restart_empty();
    eventually(seconds(3), "the hold", async || match watch.latest().unwrap().held() {
        2 => Ok(()),
        held => Err(held),
    })
    .await;
    // An outage that is longer than what is left of the grace, during which everybody comes back.
    link.cut();
    put(&store, "a", 1);
    put(&store, "b", 1);
    sleep(seconds(30)).await;
    link.delay(millis(5));
    link.pass();
    link.delay(millis(5));
    let end = Instant::now() + seconds(20);
    while let Ok(Some(set)) = tokio::time::timeout_at(end, watch.changed()).await {
        assert_eq!(set.len(), 2, "the outage emptied the set: {set:?}");
    }
    assert!(watch.freshness().is_live());
}

/// What a person on call can do who knows that an instance is gone: the store says it, by a record that is written and deleted.
#[tokio::test(start_paused = true)]
async fn w09_a_removal_that_is_seen_live_ends_a_hold() {
    let (store, backend, _) = opened();
    put(&store, "a", 1);
    put(&store, "b", 1);
    let watch = backend.watch("pay");
    watch.ready(seconds(5)).await.unwrap();
    store.restart_empty();
    eventually(seconds(3), "the hold", async || match watch.latest().unwrap().held() {
        2 => Ok(()),
        held => Err(held),
    })
    .await;
    put(&store, "a", 0);
    store.delete_raw(&path("a"));
    converges(&watch, seconds(1), &[("b", 1)]).await;
    assert_eq!(watch.latest().unwrap().held(), 1);
}

#[tokio::test(start_paused = true)]
async fn w09_a_subscription_that_breaks_again_and_again_holds_nobody_for_ever() {
    let (store, backend, link) = opened();
    put(&store, "a", 1);
    let watch = backend.watch("pay");
    watch.ready(seconds(5)).await.unwrap();
    link.cut();
    eventually(seconds(5), "stale", async || if watch.freshness().is_stale() { Ok(()) } else { Err(()) }).await;
    store.delete_raw(&path("a"));
    link.pass();
    let end = Instant::now() + seconds(60);
    while Instant::now() < end {
        sleep(seconds(8)).await;
        put(&store, "elsewhere", 1);
        store.delete_raw(&path("elsewhere"));
        store.compact();
    }
    assert_eq!(watch.latest().unwrap().held(), 0);
}

#[tokio::test(start_paused = true)]
async fn r02_a_write_of_unknown_outcome_on_a_new_lease_is_removed_too() {
    let (store, backend, link) = opened();
    let _other = registered(&backend, "other").await;
    let registration = registered(&backend, "a").await;
    link.delay(millis(100));
    store.expire_leases();
    eventually(seconds(20), "the record on its new lease", async || store.get_raw(&path("a")).ok_or(())).await;
    link.swallow_replies();
    let removal = tokio::spawn(async move { (registration.deregister_within(seconds(30)).await, registration) });
    sleep(millis(4_500)).await;
    link.pass();
    let (result, _registration) = removal.await.unwrap();
    result.unwrap();
    assert_eq!(store.get_raw(&path("a")), None, "deregister returned before the record was gone");
}

#[tokio::test(start_paused = true)]
async fn r02_close_is_tried_again_after_an_error() {
    let (store, backend, link) = opened();
    let registration = registered(&backend, "a").await;
    link.stop();
    let (first, second) = tokio::join!(backend.close(seconds(1)), backend.close(seconds(2)));
    assert_eq!(first.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(second.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    assert!(registration.deregister_within(seconds(1)).await.is_err());
    link.pass();
    backend.close(seconds(30)).await.unwrap();
    assert_eq!(store.get_raw(&path("a")), None);
    registration.deregister().await.unwrap();
    assert!(matches!(registration.state(), RegistrationState::Closed));
}

#[tokio::test(start_paused = true)]
async fn r07_updates_at_once_build_on_each_other() {
    let (store, backend, link) = opened();
    let registration = registered(&backend, "a").await;
    link.delay(millis(50));
    let (drained, updated) = tokio::join!(
        registration.update(|instance| instance.state(State::Draining)),
        registration.update(|instance| instance.weight(7)),
    );
    drained.and(updated).unwrap();
    let stored = String::from_utf8(store.get_raw(&path("a")).unwrap()).unwrap();
    assert!(stored.contains("\"weight\":7") && stored.contains("draining"), "{stored}");
}

/// Failed tries neither stop nor pile up work, however long they go on.
#[tokio::test(start_paused = true)]
async fn r04_retries_never_end() {
    let (store, backend, link) = opened();
    let mut held = Vec::new();
    for n in 0..50 {
        held.push(registered(&backend, &n.to_string()).await);
    }
    for _ in 0..20 {
        link.swallow_replies();
        sleep(seconds(120)).await;
        store.expire_leases();
        for registration in &held {
            // Whoever gives up must leave nothing behind.
            let _ = tokio::time::timeout(millis(1), registration.update(|instance| instance.weight(3))).await;
        }
        link.pass();
        eventually(seconds(60), "all to be registered", async || {
            let missing = held.iter().filter(|registration| !registration.state().is_registered()).count();
            if missing == 0 { Ok(()) } else { Err(missing) }
        })
        .await;
    }
}

/// The default lease survives a connection that falls silent, whenever it does.
#[tokio::test(start_paused = true)]
async fn r05_a_silent_connection_does_not_cost_the_lease() {
    for (ttl, timeout) in [(10, 3), (6, 3), (10, 8)] {
        for offset in 0..20 {
            let store = MemoryStore::new();
            let mut policy = Policy::default();
            (policy.ttl, policy.timeout) = (seconds(ttl), seconds(timeout));
            let (backend, link) = store.open("", policy).unwrap();
            let _registration = registered(&backend, "a").await;
            sleep(seconds(20) + millis(offset * 177)).await;
            let revision = store.revision();
            link.freeze();
            sleep(seconds(60)).await;
            assert_eq!(store.revision(), revision, "TTL {ttl} s, timeout {timeout} s, offset {offset}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r09_a_draining_instance_is_better_than_one_that_cannot_be_reached() {
    let (_, backend, _) = opened();
    let _new = registered(&backend, "new").await;
    let old = registered(&backend, "old").await;
    old.update(|instance| instance.state(State::Draining)).await.unwrap();
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    let picked = async |id: &str| {
        eventually(seconds(3), id, async || match balancer.pick(&Context::default()) {
            Ok(pick) if pick.instance().id() == id => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    };
    picked("new").await;
    balancer.set_available("new", false);
    picked("old").await;
    balancer.set_available("old", false);
    picked("new").await;
}
