//! Explanations.

use super::*;
use crate::picker::{Sticky, Subset};
use crate::{EjectionCause, Filter, Reason, Traffic};

#[tokio::test(start_paused = true)]
async fn everybody_is_explained() {
    let drains = instance("draining", 1).to_builder().state(State::Draining).build().unwrap();
    let plain = ["a", "b", "c", "ejected", "other", "unhealthy", "unreachable"].map(|id| instance(id, 1));
    let fleet = plain.into_iter().chain([drains, instance("weightless", 0)]);
    let options = BalancerOptions::default().with_filter(Filter::new("no others", |i| i.id() != "other"));
    let (_backend, _held, balancer) = balanced(fleet, RoundRobin::new(), options).await;
    ends_at(&balancer, "ejected", Outcome::Unreachable);
    balancer.set_available("unreachable", false);
    balancer.set_health("unhealthy", Condition::Unhealthy("no answer within 1s".into()));
    heeded(&balancer).await;
    let found: Vec<_> = balancer.explain().iter().map(ToString::to_string).collect();
    let expected = [
        "a: gets its share",
        "b: gets its share",
        "c: gets its share",
        "draining: gets nothing: it is draining while others serve",
        "ejected: gets nothing: ejected until 20",
        "other: gets nothing: filtered out by \"no others\"",
        "unhealthy: gets nothing: unhealthy: no answer within 1s",
        "unreachable: gets nothing: it cannot be reached",
        "weightless: gets nothing: its weight is 0",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
    assert_eq!(found.len(), expected.len());
    assert!(found[4].ends_with("because a request got no connection"), "{}", found[4]);
    let standing = &balancer.explain()[4];
    let [Reason::Ejected { cause: EjectionCause::Unreachable, until }] = standing.reasons() else {
        panic!("{standing:?}");
    };
    let left = until.duration_since(std::time::SystemTime::now()).unwrap();
    assert!((Duration::from_secs(28)..Duration::from_secs(31)).contains(&left), "{left:?}");
    assert_eq!(standing.traffic(), Traffic::None);
}

#[tokio::test(start_paused = true)]
async fn who_is_outside_of_a_subset_is_told_apart_from_who_gets_its_share() {
    let fleet = (0..20).map(|n| instance(&format!("{n:02}"), 1));
    let factory = Sticky::new(Subset::new(RoundRobin::new(), 3, "client"));
    let (_backend, _held, balancer) = balanced(fleet, factory, BalancerOptions::default()).await;
    let of = |traffic| {
        let all = balancer.explain().into_iter().filter(|standing| standing.traffic() == traffic);
        all.map(|standing| standing.instance().id().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((of(Traffic::Full).len(), of(Traffic::None).len()), (3, 17));
    let mut picked: Vec<_> = (0..100u32)
        .map(|key| balancer.pick(&Context::default().with_key(&key.to_le_bytes())).unwrap().instance().id().to_owned())
        .collect();
    picked.sort();
    picked.dedup();
    assert_eq!(picked, of(Traffic::Full));
    assert_eq!(
        standing(&balancer, &of(Traffic::None)[0]).split_once(": ").unwrap().1,
        "gets nothing: the picker never chooses it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_too_old_gives_nothing_to_anybody() {
    let (_, backend, link) = opened();
    let _a = registered(&backend, instance("a", 1)).await;
    let options = BalancerOptions::default().with_stale(StalePolicy::RefuseAfter(Duration::from_secs(20)));
    let balancer = Balancer::with_options(backend.watch("pay"), RoundRobin::new(), options);
    knows(&balancer, &["a"]).await;
    assert_eq!(standing(&balancer, "a"), "a: gets its share");
    link.cut();
    while balancer.pick(&Context::default()).is_ok() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(standing(&balancer, "a"), "a: gets nothing: the set is older than allowed");
}
