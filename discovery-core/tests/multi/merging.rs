//! Discovering from all sides at once.

use std::time::Duration;

use discovery_core::multi::Mode;
use discovery_core::{Backend, Discovery};
use tokio::time::Instant;

use crate::{Seen, Stage, ids, instance, lasts, put, register, shows, until, weighing};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn w01_the_first_set_is_of_both() {
    let stage = Stage::new();
    put(&stage, 0, &instance("a"));
    put(&stage, 1, &instance("b"));
    let handle = stage.handle(Mode::Union);
    handle.links[0].delay(SECOND / 10);
    let mut watch = handle.both.watch("pay");
    let first = watch.changed().await.unwrap();
    assert_eq!(ids(&first), ["a", "b"], "a part is no full set");
    assert!(first.freshness().is_live());
}

#[tokio::test(start_paused = true)]
async fn w13_a_side_that_is_away_from_the_start_is_waited_for_and_then_named() {
    let stage = Stage::new();
    put(&stage, 1, &instance("b"));
    let handle = stage.handle_without(Mode::Union, &[0]);
    let watch = handle.both.watch("pay");
    assert!(watch.freshness().is_loading());
    let first = watch.ready(3 * SECOND).await.unwrap();
    assert_eq!(ids(&first), ["b"]);
    let cause = first.freshness().cause().unwrap().to_string();
    assert!(first.freshness().is_stale() && cause.contains("memory:///discovery: cannot reach memory:"), "{cause}");

    // Whether a service has nobody is only known once both have said so.
    let other = handle.both.watch("other");
    lasts(10 * SECOND, "loading", || other.freshness().is_loading()).await;
    assert!(other.ready(SECOND).await.unwrap_err().to_string().contains("the link is cut"));

    put(&stage, 0, &instance("a"));
    handle.links[0].pass();
    assert!(shows(&watch, &["a", "b"]).await.freshness().is_live());
    assert!(other.ready(10 * SECOND).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn w04_an_outage_of_either_side_changes_nothing_and_names_it() {
    let stage = Stage::new();
    put(&stage, 0, &instance("a"));
    put(&stage, 1, &instance("b"));
    let handle = stage.handle(Mode::Union);
    let watch = handle.both.watch("pay");
    shows(&watch, &["a", "b"]).await;
    let seen = Seen::of(&watch);
    for link in &handle.links {
        link.cut();
        until("stale", || watch.freshness().is_stale()).await;
        assert!(watch.freshness().cause().unwrap().message().contains("the link is cut"));
        lasts(20 * SECOND, "the set", || watch.latest().is_some_and(|set| ids(&set) == ["a", "b"])).await;
        link.pass();
        until("live", || watch.freshness().is_live()).await;
    }
    handle.both.close(SECOND).await.unwrap();
    assert!(seen.all().await.iter().all(|set| ids(set) == ["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn the_same_id_is_listed_once_with_the_first_sides_record() {
    let stage = Stage::new();
    put(&stage, 0, &weighing("a", 1));
    put(&stage, 1, &weighing("a", 2));
    let handle = stage.handle(Mode::Union);
    let watch = handle.both.watch("pay");
    assert_eq!(shows(&watch, &["a"]).await.get("a").unwrap().weight(), 1);
    put(&stage, 1, &weighing("a", 3));
    stage.stores[0].delete_raw("/discovery/pay/a");
    until("the second's record", || watch.latest().unwrap().get("a").is_some_and(|a| a.weight() == 3)).await;
    stage.stores[1].delete_raw("/discovery/pay/a");
    assert!(shows(&watch, &[]).await.freshness().is_live());
}

/// W10: a side that is away cannot vouch for who left the other one meanwhile, nor can it at once when it is back.
#[tokio::test(start_paused = true)]
async fn w10_who_leaves_during_an_outage_of_one_side_does_not_come_back_with_it() {
    let stage = Stage::new();
    for at in [0, 1] {
        put(&stage, at, &instance("a"));
        put(&stage, at, &instance("b"));
    }
    let handle = stage.handle(Mode::Union);
    let watch = handle.both.watch("pay");
    shows(&watch, &["a", "b"]).await;
    handle.links[0].cut();
    until("stale", || watch.freshness().is_stale()).await;
    stage.stores[1].delete_raw("/discovery/pay/a");
    shows(&watch, &["b"]).await;
    handle.links[0].pass();
    until("live", || watch.freshness().is_live()).await;
    // The first side still lists it: a lease that ends later.
    lasts(9 * SECOND, "its absence", || watch.latest().is_some_and(|set| ids(&set) == ["b"])).await;
    // What is still there after every lease has ended is registered there.
    shows(&watch, &["a", "b"]).await;

    // A new registration is seen at once, on whichever side.
    handle.links[0].cut();
    until("stale", || watch.freshness().is_stale()).await;
    stage.stores[1].delete_raw("/discovery/pay/b");
    shows(&watch, &["a"]).await;
    handle.links[0].pass();
    until("live", || watch.freshness().is_live()).await;
    put(&stage, 0, &weighing("b", 7));
    until("the new one", || watch.latest().unwrap().get("b").is_some_and(|b| b.weight() == 7)).await;
}

/// W10: a side that comes back with an older record does not turn the set back; and during its outage the other one's counts (R9).
#[tokio::test(start_paused = true)]
async fn w10_a_side_that_returns_behind_the_other_turns_nothing_back() {
    let stage = Stage::new();
    for at in [0, 1] {
        put(&stage, at, &weighing("a", 1));
    }
    let handle = stage.handle(Mode::Union);
    let watch = handle.both.watch("pay");
    shows(&watch, &["a"]).await;
    let seen = Seen::of(&watch);
    let weighs = |weight| watch.latest().unwrap().get("a").is_some_and(|a| a.weight() == weight);
    handle.links[0].cut();
    until("stale", || watch.freshness().is_stale()).await;
    put(&stage, 1, &weighing("a", 2));
    until("the record of the side that is there", || weighs(2)).await;
    handle.links[0].pass();
    until("live", || watch.freshness().is_live()).await;
    lasts(2 * SECOND, "the newer record", || weighs(2)).await;
    put(&stage, 0, &weighing("a", 2));
    put(&stage, 1, &weighing("a", 3));
    put(&stage, 0, &weighing("a", 3));
    until("the newest", || weighs(3)).await;
    lasts(20 * SECOND, "the newest", || weighs(3)).await;
    handle.both.close(SECOND).await.unwrap();
    let weights: Vec<_> = seen.all().await.iter().map(|set| set.get("a").unwrap().weight()).collect();
    assert!(weights.is_sorted(), "{weights:?}");
}

/// R9: what is written on a side that came back is newer than what one that is still away knew last, whichever of them went first.
#[tokio::test(start_paused = true)]
async fn r09_a_change_is_seen_at_once_on_the_side_that_came_back_first() {
    for first in [0, 1] {
        let stage = Stage::new();
        let handle = stage.handle(Mode::Union);
        let a = register(&*stage.handle(Mode::Union).both, instance("a")).await;
        let watch = handle.both.watch("pay");
        shows(&watch, &["a"]).await;
        for at in [first, 1 - first] {
            handle.links[at].cut();
            lasts(20 * SECOND, "the set", || ids(&watch.latest().unwrap()) == ["a"]).await;
        }
        handle.links[first].pass();
        // It is back, and not long enough yet to go before the other one.
        let other = register(&*stage.alone[first], instance("b")).await;
        shows(&watch, &["a", "b"]).await;
        let begun = Instant::now();
        a.update(|a| a.weight(7)).await.unwrap();
        until("the update", || watch.latest().unwrap().get("a").is_some_and(|a| a.weight() == 7)).await;
        assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
        drop(other);
    }
}

#[tokio::test(start_paused = true)]
async fn a_side_that_flaps_moves_nothing() {
    let stage = Stage::new();
    let a = instance("a");
    put(&stage, 0, &a);
    put(&stage, 1, &a);
    put(&stage, 0, &instance("b"));
    put(&stage, 1, &instance("c"));
    for mode in [Mode::Union, Mode::Prefer, Mode::Failover] {
        let handle = stage.handle(mode);
        let watch = handle.both.watch("pay");
        let first = watch.ready(SECOND).await.unwrap();
        let seen = Seen::of(&watch);
        for _ in 0..20 {
            handle.links[0].cut();
            tokio::time::sleep(2 * SECOND).await;
            handle.links[0].pass();
            tokio::time::sleep(5 * SECOND).await;
        }
        handle.both.close(SECOND).await.unwrap();
        let seen = seen.all().await;
        assert!(seen.len() > 20 && seen.iter().any(|set| set.freshness().is_stale()), "{mode:?}: it was not noticed");
        assert!(seen.iter().all(|set| set.changes_since(&first).is_empty()), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn w09_a_side_that_restarts_empty_takes_nobody_away() {
    let stage = Stage::new();
    let held = [stage.handle(Mode::Union), stage.handle(Mode::Union)];
    let _a = register(&*held[0].both, instance("a")).await;
    let _b = register(&*held[1].both, instance("b")).await;
    let handle = stage.handle(Mode::Union);
    let watch = handle.both.watch("pay");
    shows(&watch, &["a", "b"]).await;
    let seen = Seen::of(&watch);
    stage.stores[0].restart_empty();
    until("repaired", || stage.stored(0, "a").is_some() && stage.stored(0, "b").is_some()).await;
    until("live", || watch.freshness().is_live()).await;
    handle.both.close(SECOND).await.unwrap();
    assert!(seen.all().await.iter().all(|set| ids(set) == ["a", "b"]));
}

#[tokio::test(start_paused = true)]
async fn w05_a_watch_ends_with_the_last_of_its_sides() {
    let stage = Stage::new();
    put(&stage, 0, &instance("a"));
    put(&stage, 1, &instance("b"));
    let handle = stage.handle(Mode::Union);
    let mut watch = handle.both.watch("pay");
    shows(&watch, &["a", "b"]).await;
    handle.sides[0].close(SECOND).await.unwrap();
    assert!(shows(&watch, &["b"]).await.freshness().is_live());
    handle.sides[1].close(SECOND).await.unwrap();
    while let Some(set) = watch.changed().await {
        assert_eq!(ids(&set), ["b"], "the end is not an empty set");
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_those_of_both() {
    let stage = Stage::new();
    put(&stage, 0, &instance("a"));
    let other = instance("b").to_builder().build().unwrap();
    let other = discovery_core::Instance::builder("other").id(other.id()).endpoint("grpc://h:1").build().unwrap();
    put(&stage, 1, &other);
    for mode in [Mode::Union, Mode::Prefer] {
        let handle = stage.handle(mode);
        let names = handle.both.services(SECOND).await.unwrap();
        assert_eq!(names.names().iter().map(|name| &**name).collect::<Vec<_>>(), ["other", "pay"]);
        let watch = handle.both.watch_services();
        handle.links[1].cut();
        until("stale", || watch.freshness().is_stale()).await;
        assert_eq!(watch.latest().unwrap().names().len(), 2);
    }
}
