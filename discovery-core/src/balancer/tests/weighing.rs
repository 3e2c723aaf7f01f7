//! Weights of every kind, through every picker (F13), on paused time.

use super::*;
use crate::Clock;
use crate::picker::testing::{EVERY, Kind};

/// Picks for as many keys, at most so many of them open at the same time, so that pickers that go by load have some to go by.
fn counts_of_keys(balancer: &Balancer, picks: u32) -> [u32; 3] {
    let mut counts = [0; 3];
    let mut open = std::collections::VecDeque::new();
    for key in 0..picks {
        let pick = balancer.pick(&Context::default().with_key(&key.to_le_bytes())).unwrap();
        counts[["a", "b", "c"].iter().position(|id| *id == pick.instance().id()).unwrap()] += 1;
        open.push_back(pick);
        if open.len() > 6 {
            open.pop_front().unwrap().finish(Outcome::Success);
        }
    }
    counts
}

/// A balancer over "a", "b" and "c" with these weights, by a clock that stands still, as otherwise the fastest would be found.
async fn weighing(kind: &Kind, weights: [u32; 3]) -> (Vec<Registration>, Balancer) {
    let options = BalancerOptions::default().with_clock(Clock::manual().0);
    let instances = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].into_iter().zip(["a", "b", "c"]).zip(weights);
    let instances = instances.map(|((host, id), weight)| {
        Instance::builder("pay").id(id).endpoint(&format!("grpc://{host}:9000")).weight(weight).build().unwrap()
    });
    let (_, held, balancer) = balanced(instances, (kind.factory)(), options).await;
    (held, balancer)
}

/// Nobody without weight is ever picked, nobody with weight is forgotten, and the largest weights neither overflow nor favour anybody.
#[tokio::test(start_paused = true)]
async fn f13_weights_of_every_kind_through_every_picker() {
    const PICKS: u32 = 6_000;
    const MAX: u32 = u32::MAX;
    fastrand::seed(7);
    for kind in &EVERY {
        for weights in [[0, 0, 0], [0, 5, 0], [100, 100, 100], [MAX; 3], [MAX, 0, MAX], [0, 1, MAX], [100, 100, 200]] {
            let (_held, balancer) = weighing(kind, weights).await;
            let context = format!("{} with {weights:?}", kind.name);
            if weights == [0, 0, 0] {
                let error = balancer.pick(&Context::default()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NoInstance, "{context}");
                assert!(error.message().contains("3 known, all with weight 0"), "{context}: {error}");
                continue;
            }
            // Without a key, with a reader and without: somebody who has weight.
            for pick in [balancer.pick(&Context::default()), balancer.reader().pick(&Context::default())] {
                assert!(pick.unwrap().instance().weight() > 0, "{context}");
            }
            let counts = counts_of_keys(&balancer, PICKS);
            let is_even = weights.iter().all(|weight| *weight == 0 || weight == weights.iter().max().unwrap());
            let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
            for (count, weight) in counts.iter().zip(weights) {
                let share = f64::from(weight) / sum * f64::from(PICKS);
                let deviation = (f64::from(*count) - share).abs();
                assert!(weight > 0 || *count == 0, "{context}: {counts:?}");
                // Rings of peers whose points do not follow the weight closely promise only who gets any.
                if is_even || kind.by_weight {
                    assert!(deviation <= share * kind.spread + 1.0, "{context}: {counts:?}");
                }
            }
        }
    }
}
