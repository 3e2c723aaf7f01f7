//! The balancer over the in-memory backend, on paused time.

mod ejecting;
mod explaining;
mod fixture;
mod joining;
mod panicking;
mod properties;
mod racing;
mod starting;
mod tiers;
mod weighing;

use std::collections::BTreeMap;

use super::*;
use crate::memory::{MemoryLink, MemoryStore};
use crate::picker::{PowerOfTwo, Random, RoundRobin, WeightedRoundRobin};
use crate::{Backend, Instance, Policy, Registration, State};
use fixture::*;

#[tokio::test(start_paused = true)]
async fn p02_weight_zero_is_drained_and_all_at_zero_is_nobody() {
    let (_, backend, _) = opened();
    let a = registered(&backend, instance("a", 0)).await;
    let b = registered(&backend, instance("b", 3)).await;
    for balancer in [
        Balancer::new(backend.watch("pay"), Random),
        Balancer::new(backend.watch("pay"), RoundRobin::new()),
        Balancer::new(backend.watch("pay"), WeightedRoundRobin::new()),
        Balancer::new(backend.watch("pay"), PowerOfTwo),
    ] {
        knows(&balancer, &["a", "b"]).await;
        assert_eq!(counts(&balancer, 100), BTreeMap::from([("b".to_owned(), 100)]));
    }
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    b.update(|i| i.weight(0)).await.unwrap();
    let mut built = balancer.inner.shared.built.subscribe();
    let error = loop {
        match balancer.pick(&Context::default()) {
            Err(error) if error.message().contains("weight 0") => break error,
            _ => built.changed().await.unwrap(),
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoInstance);
    assert!(error.to_string().contains("2 known, all with weight 0"), "{error}");
    drop((a, b));
}

#[tokio::test(start_paused = true)]
async fn p03_statistics_survive_updates() {
    let (_, backend, _) = opened();
    let a = registered(&backend, instance("a", 1)).await;
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    knows(&balancer, &["a"]).await;
    let open = balancer.pick(&Context::default()).unwrap();
    counts(&balancer, 5);
    let _b = registered(&backend, instance("b", 1)).await;
    a.update(|i| i.weight(7)).await.unwrap();
    knows(&balancer, &["a", "b"]).await;
    let member = balancer.members().into_iter().find(|m| m.instance().id() == "a").unwrap();
    assert_eq!((member.pending(), member.count(Outcome::Success)), (1, 5));
    drop(open);
    assert_eq!((member.pending(), member.count(Outcome::Cancelled)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn p04_the_unreachable_are_picked_only_if_all_are() {
    let (_, backend, _) = opened();
    let _held = [registered(&backend, instance("a", 1)).await, registered(&backend, instance("b", 1)).await];
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    knows(&balancer, &["a", "b"]).await;
    balancer.set_available("a", false);
    // At once, before the selection was built anew.
    assert_eq!(counts(&balancer, 10), BTreeMap::from([("b".to_owned(), 10)]));
    balancer.set_available("b", false);
    balancer.inner.shared.built.subscribe().changed().await.unwrap();
    assert_eq!(counts(&balancer, 10), BTreeMap::from([("a".to_owned(), 5), ("b".to_owned(), 5)]));
}

#[tokio::test(start_paused = true)]
async fn p05_who_comes_and_goes_is_a_candidate_once_its_share_is_settled() {
    let (_, backend, _) = opened();
    let _held = [registered(&backend, instance("a", 1)).await, registered(&backend, instance("b", 1)).await];
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    knows(&balancer, &["a", "b"]).await;
    assert_eq!(balancer.candidates(), 2);
    // It is back before a selection without it was built; that one may still be under way.
    balancer.set_available("a", false);
    balancer.set_available("a", true);
    assert_eq!(balancer.candidates(), 0);
    balancer.selections().changed().await;
    assert_eq!(balancer.candidates(), 2);
    balancer.set_available("a", false);
    balancer.selections().changed().await;
    assert_eq!(balancer.candidates(), 1);
}

#[tokio::test(start_paused = true)]
async fn r09_the_draining_are_picked_only_if_all_are() {
    let (_, backend, _) = opened();
    let a = registered(&backend, instance("a", 1)).await;
    let b = registered(&backend, instance("b", 1)).await;
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    a.update(|i| i.state(State::Draining)).await.unwrap();
    knows(&balancer, &["a", "b"]).await;
    assert_eq!(counts(&balancer, 4), BTreeMap::from([("b".to_owned(), 4)]));
    b.update(|i| i.state(State::Draining)).await.unwrap();
    let mut built = balancer.inner.shared.built.subscribe();
    while counts(&balancer, 4).len() < 2 {
        built.changed().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn w13_an_empty_set_fails_at_once_or_waits_and_the_error_says_why() {
    let (_, backend, link) = opened();
    link.cut();
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    let error = balancer.pick_within(&Context::default(), Duration::from_secs(3)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\"pay\"") && text.contains("no set was read") && text.contains("the link is cut"), "{text}");
    assert!(text.contains("waited 3s"), "{text}");
    link.pass();
    let waiting = tokio::spawn({
        let balancer = balancer.clone();
        async move { balancer.pick_within(&Context::default(), Duration::from_secs(60)).await }
    });
    let _a = backend.register(instance("a", 1), Default::default()).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().instance().id(), "a");
}

#[tokio::test(start_paused = true)]
async fn w04_a_stale_set_is_served_or_refused_as_the_caller_says() {
    let (_, backend, link) = opened();
    let _a = registered(&backend, instance("a", 1)).await;
    let serve = Balancer::new(backend.watch("pay"), RoundRobin::new());
    let options = BalancerOptions::default().with_stale(StalePolicy::RefuseAfter(Duration::from_secs(20)));
    let refuse = Balancer::with_options(backend.watch("pay"), RoundRobin::new(), options);
    knows(&serve, &["a"]).await;
    knows(&refuse, &["a"]).await;
    link.cut();
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(serve.freshness().is_stale());
    assert!(refuse.pick(&Context::default()).is_ok());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(serve.pick(&Context::default()).is_ok());
    let text = refuse.pick(&Context::default()).unwrap_err().to_string();
    assert!(
        text.contains("1 known") && text.contains("older than allowed") && text.contains("the link is cut"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn p07_nothing_runs_on_after_the_last_clone() {
    let (_, backend, _) = opened();
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    drop((balancer.clone(), balancer));
    tokio::time::timeout(Duration::from_secs(10), async {
        while metrics.num_alive_tasks() > before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn w05_a_closed_backend_leaves_its_last_set_and_reachability_counts_on() {
    let (_, backend, _) = opened();
    let _held = [registered(&backend, instance("a", 1)).await, registered(&backend, instance("b", 1)).await];
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    let nobody = Balancer::new(backend.watch("nobody"), RoundRobin::new());
    knows(&balancer, &["a", "b"]).await;
    let mut selections = balancer.selections();
    backend.close(Duration::from_secs(1)).await.unwrap();
    selections.changed().await;
    for (id, available, expected) in [("a", false, "b"), ("a", true, "a"), ("b", false, "a")] {
        balancer.set_available(id, available);
        selections.changed().await;
        assert!(counts(&balancer, 4).contains_key(expected), "{id} {available}");
    }
    let error = nobody.pick_within(&Context::default(), Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn p08_a_pick_is_counted_once_or_given_back() {
    let (_, backend, _) = opened();
    let _a = registered(&backend, instance("a", 1)).await;
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    knows(&balancer, &["a"]).await;
    let pick = || balancer.pick(&Context::default()).unwrap();
    pick().finish(Outcome::Success);
    pick().finish(Outcome::Failure);
    pick().discard();
    drop(pick());
    let member = &balancer.members()[0];
    let all = [Outcome::Success, Outcome::Failure, Outcome::Cancelled].map(|outcome| member.count(outcome));
    assert_eq!((all, member.pending()), ([1, 1, 1], 0));
}

/// Whoever begins a pick, on whichever selection, its outcome is counted once, and a former member of the same id has nothing of it.
#[tokio::test(start_paused = true)]
async fn p08_what_readers_begin_is_counted_once_whatever_changes() {
    let (store, backend, _) = opened();
    let a = registered(&backend, instance("a", 1)).await;
    let balancer = Balancer::new(backend.watch("pay"), RoundRobin::new());
    knows(&balancer, &["a"]).await;
    let counted = |expected: [u64; 3], pending: u32| {
        let member = balancer.members().into_iter().find(|member| member.instance().id() == "a").unwrap();
        let all = [Outcome::Success, Outcome::Failure, Outcome::Cancelled].map(|outcome| member.count(outcome));
        assert_eq!((all, member.pending()), (expected, pending));
    };
    let (mut first, mut second) = (balancer.reader(), balancer.reader());
    let mut picks = |outcome| {
        let all =
            [first.pick(&Context::default()), second.pick(&Context::default()), balancer.pick(&Context::default())];
        all.into_iter().for_each(|pick| pick.unwrap().finish(outcome));
    };
    picks(Outcome::Success);
    picks(Outcome::Failure);
    counted([3, 3, 0], 0);
    a.update(|i| i.weight(7)).await.unwrap();
    let heeded = async {
        while balancer.members()[0].weight() != 7 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(3), heeded).await.unwrap();
    picks(Outcome::Success);
    counted([6, 3, 0], 0);
    let open = first.pick(&Context::default()).unwrap();
    first.pick(&Context::default()).unwrap().discard();
    counted([6, 3, 0], 1);
    let third = second.clone();
    drop((first, second, third));
    counted([6, 3, 0], 1);
    drop(open);
    counted([6, 3, 1], 0);
    store.delete_raw("/discovery/pay/a");
    knows(&balancer, &[]).await;
    let _again = registered(&backend, instance("a", 1)).await;
    knows(&balancer, &["a"]).await;
    counted([0, 0, 0], 0);
}
