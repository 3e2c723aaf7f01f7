//! Discovering from one side at a time.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::multi::{Mode, Multi, MultiOptions};
use discovery_core::picker::RoundRobin;
use discovery_core::{Backend, Balancer, Context, Discovery, DiskCache, Instance, Watch};

use crate::{Seen, Stage, ids, instance, lasts, policy, put, shows, until, weighing};

const SECOND: Duration = Duration::from_secs(1);

/// Only the second side has `b`, only the first has `a`.
fn differing() -> Stage {
    let stage = Stage::new();
    put(&stage, 0, &instance("a"));
    put(&stage, 0, &instance("c"));
    put(&stage, 1, &instance("b"));
    put(&stage, 1, &instance("c"));
    stage
}

#[tokio::test(start_paused = true)]
async fn prefer_takes_each_service_from_the_first_side_that_has_it() {
    let stage = differing();
    put(&stage, 1, &Instance::builder("other").id("o").endpoint("grpc://h:1").build().unwrap());
    let handle = stage.handle(Mode::Prefer);
    let (pay, other) = (handle.both.watch("pay"), handle.both.watch("other"));
    assert!(shows(&pay, &["a", "c"]).await.freshness().is_live());
    assert!(shows(&other, &["o"]).await.freshness().is_live());
    // An outage changes nothing, however long it is.
    handle.links[0].cut();
    until("stale", || pay.freshness().is_stale() && other.freshness().is_stale()).await;
    lasts(60 * SECOND, "the sets", || ids(&pay.latest().unwrap()) == ["a", "c"] && other.latest().unwrap().len() == 1)
        .await;
    handle.links[0].pass();
    until("live", || pay.freshness().is_live()).await;
    // The last one leaves, by and by.
    for id in ["a", "c"] {
        stage.stores[0].delete_raw(&format!("/discovery/pay/{id}"));
    }
    shows(&pay, &["b", "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn failover_takes_the_next_side_once_the_first_is_away_for_long_and_returns_once_it_is_back_for_long() {
    let stage = differing();
    let handle = stage.handle(Mode::Failover);
    let watch = handle.both.watch("pay");
    assert!(shows(&watch, &["a", "c"]).await.freshness().is_live());
    handle.links[0].cut();
    until("stale", || watch.freshness().is_stale()).await;
    lasts(9 * SECOND, "the first's set", || ids(&watch.latest().unwrap()) == ["a", "c"]).await;
    let second = shows(&watch, &["b", "c"]).await;
    assert!(second.freshness().cause().unwrap().message().contains("the link is cut"), "it says which is away");
    handle.links[0].pass();
    until("live", || watch.freshness().is_live()).await;
    lasts(9 * SECOND, "the second's set", || ids(&watch.latest().unwrap()) == ["b", "c"]).await;
    shows(&watch, &["a", "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn failover_at_the_start_takes_who_is_there() {
    let stage = differing();
    let handle = stage.handle_without(Mode::Failover, &[0]);
    let watch = handle.both.watch("pay");
    assert_eq!(ids(&watch.ready(3 * SECOND).await.unwrap()), ["b", "c"]);
    handle.links[0].pass();
    shows(&watch, &["a", "c"]).await;
}

/// What an earlier process left may be long gone: where a registry that answers has the service, it goes before the disk of one that does not.
#[tokio::test(start_paused = true)]
async fn prefer_takes_what_a_registry_says_before_what_the_disk_remembers() {
    let (stage, folder) = (differing(), tempfile::tempdir().unwrap());
    put(&stage, 0, &Instance::builder("old").id("o").endpoint("grpc://h:1").build().unwrap());
    let mut policy = policy();
    policy.cache = Some(DiskCache::new(folder.path().join("sets")));
    {
        let (backend, _) = stage.stores[0].open("", policy.clone()).unwrap();
        let _watches = [shows_all(&backend, "pay", 2).await, shows_all(&backend, "old", 1).await];
        until("the sets on the disk", || backend.cache_status().is_some_and(|status| status.written >= 2)).await;
    }
    let (first, link) = stage.stores[0].open("", policy).unwrap();
    link.cut();
    let sides = vec![first, stage.stores[1].connect()];
    let both = Multi::new(sides, MultiOptions::default().with_mode(Mode::Prefer)).unwrap();
    let (pay, old) = (both.watch("pay"), both.watch("old"));
    assert!(!shows(&pay, &["b", "c"]).await.is_from_disk());
    assert!(shows(&old, &["o"]).await.is_from_disk(), "nobody knows better");
    lasts(60 * SECOND, "the sets", || ids(&pay.latest().unwrap()) == ["b", "c"]).await;
    link.pass();
    shows(&pay, &["a", "c"]).await;
}

async fn shows_all(backend: &Arc<dyn Backend>, service: &str, count: usize) -> Watch {
    let watch = backend.watch(service);
    until(service, || watch.latest().is_some_and(|set| set.freshness().is_live() && set.len() == count)).await;
    watch
}

/// W4: who fails over to a registry in which nobody registered would lose everybody.
#[tokio::test(start_paused = true)]
async fn w04_nobody_fails_over_to_a_side_without_instances() {
    let stage = Stage::new();
    put(&stage, 0, &instance("a"));
    let handle = stage.handle(Mode::Failover);
    let watch = handle.both.watch("pay");
    shows(&watch, &["a"]).await;
    handle.links[0].cut();
    lasts(60 * SECOND, "the set", || ids(&watch.latest().unwrap()) == ["a"]).await;
    put(&stage, 1, &instance("b"));
    shows(&watch, &["b"]).await;
    // Where it is now, the last one may leave.
    stage.stores[1].delete_raw("/discovery/pay/b");
    shows(&watch, &[]).await;
}

/// W9: a set that the brake holds is no outage: the registry answers.
#[tokio::test(start_paused = true)]
async fn w09_a_held_set_is_no_reason_to_fail_over() {
    let stage = differing();
    let sides = stage.handle(Mode::Failover).sides;
    let options = MultiOptions::default().with_mode(Mode::Failover).with_away(SECOND);
    let both = Multi::new(sides.to_vec(), options).unwrap();
    let watch = both.watch("pay");
    shows(&watch, &["a", "c"]).await;
    let seen = Seen::of(&watch);
    stage.stores[0].restart_empty();
    until("held", || watch.latest().is_some_and(|set| set.held() == 2)).await;
    lasts(2 * SECOND, "the hold", || watch.latest().is_some_and(|set| set.held() == 2)).await;
    put(&stage, 0, &instance("a"));
    put(&stage, 0, &instance("c"));
    until("live", || watch.freshness().is_live()).await;
    lasts(20 * SECOND, "the first's set", || ids(&watch.latest().unwrap()) == ["a", "c"]).await;
    both.close(SECOND).await.unwrap();
    assert!(seen.all().await.iter().all(|set| ids(set) == ["a", "c"]));
}

/// P3, P5: ids are what an instance is known by, so turns go on over a switch of sides.
#[tokio::test(start_paused = true)]
async fn p05_turns_go_on_over_a_switch_of_sides() {
    let stage = Stage::new();
    for id in ["a", "b", "c"] {
        put(&stage, 0, &weighing(id, 1));
        put(&stage, 1, &weighing(id, 1));
    }
    let handle = stage.handle(Mode::Failover);
    let watch = handle.both.watch("pay");
    shows(&watch, &["a", "b", "c"]).await;
    let balancer = Balancer::new(watch.clone(), RoundRobin::new());
    let mut counts = std::collections::BTreeMap::new();
    let mut pick = || {
        let pick = balancer.pick(&Context::default()).unwrap();
        *counts.entry(pick.instance().id().to_owned()).or_insert(0u32) += 1;
    };
    tokio::time::sleep(SECOND).await;
    (0..100).for_each(|_| pick());
    handle.links[0].cut();
    tokio::time::sleep(20 * SECOND).await;
    assert!(watch.freshness().is_stale());
    (0..101).for_each(|_| pick());
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [67, 67, 67]);
}
