//! Explanations.

use super::*;
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
