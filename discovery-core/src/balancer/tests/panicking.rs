//! Health checks and panic mode.

use super::*;
use crate::Filter;
use crate::conformance::stays;

fn fleet(n: usize) -> Vec<Instance> {
    (0..n).map(|at| instance(&at.to_string(), 1)).collect()
}

fn sick(balancer: &Balancer, ids: &[&str]) {
    for id in ids {
        assert!(balancer.set_health(id, Condition::Unhealthy("503".into())));
    }
}

fn picked(balancer: &Balancer) -> Vec<String> {
    counts(balancer, 100).into_keys().collect()
}

#[tokio::test(start_paused = true)]
async fn p04_the_unhealthy_get_nothing_until_they_are_healthy() {
    let (_backend, _held, balancer) = balanced(fleet(4), RoundRobin::new(), BalancerOptions::default()).await;
    sick(&balancer, &["1"]);
    assert_eq!(picked(&balancer), ["0", "2", "3"], "at once");
    heeded(&balancer).await;
    assert_eq!((picked(&balancer).len(), balancer.candidates()), (3, 3));
    assert!(standing(&balancer, "1").contains("unhealthy: 503"));
    // Reachability is another matter.
    balancer.set_available("1", true);
    assert_eq!(picked(&balancer).len(), 3);
    assert!(balancer.set_health("1", Condition::Healthy));
    heeded(&balancer).await;
    assert_eq!(picked(&balancer).len(), 4);
    assert!(!balancer.set_health("9", Condition::Healthy), "nobody knows it");
}

#[tokio::test(start_paused = true)]
async fn p04_with_fewer_than_half_healthy_all_that_can_be_reached_are_picked() {
    let (_backend, _held, balancer) = balanced(fleet(6), RoundRobin::new(), BalancerOptions::default()).await;
    balancer.set_available("5", false);
    sick(&balancer, &["0", "1", "2"]);
    heeded(&balancer).await;
    assert_eq!(picked(&balancer), ["3", "4"], "half are healthy, reachable or not");
    sick(&balancer, &["3"]);
    heeded(&balancer).await;
    assert_eq!(counts(&balancer, 100).into_values().collect::<Vec<_>>(), [20; 5], "no neighbour gets more");
    assert!(standing(&balancer, "3").contains("gets its share: unhealthy: 503; too few are healthy"));
    balancer.set_health("3", Condition::Healthy);
    heeded(&balancer).await;
    assert_eq!(picked(&balancer), ["3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn p04_without_a_threshold_panic_waits_for_the_last() {
    let options = BalancerOptions::default().with_panic_threshold(0);
    let (_backend, _held, balancer) = balanced(fleet(6), RoundRobin::new(), options).await;
    sick(&balancer, &["0", "1", "2", "3", "4"]);
    heeded(&balancer).await;
    assert_eq!(picked(&balancer), ["5"]);
    balancer.set_available("5", false);
    balancer.set_available("4", false);
    heeded(&balancer).await;
    assert_eq!(picked(&balancer), ["0", "1", "2", "3"], "better unhealthy than out of reach");
    for id in ["0", "1", "2", "3"] {
        balancer.set_available(id, false);
    }
    heeded(&balancer).await;
    assert_eq!(counts(&balancer, 60).into_values().collect::<Vec<_>>(), [10; 6]);
    assert_eq!(balancer.candidates(), 0, "nobody can be reached");
}

#[tokio::test(start_paused = true)]
async fn p04_at_full_threshold_one_sick_is_enough() {
    let options = BalancerOptions::default().with_panic_threshold(100);
    let (_backend, _held, balancer) = balanced(fleet(4), RoundRobin::new(), options).await;
    sick(&balancer, &["0"]);
    heeded(&balancer).await;
    assert_eq!(picked(&balancer).len(), 4);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever stands against whom: somebody is picked, nobody out of reach unless all are, nobody without weight ever, and the selection
    /// agrees with the explanation.
    #[test]
    fn p04_somebody_is_always_picked(
        objections in proptest::collection::vec((0u8..8, 0u32..3), 1..9),
        threshold in 0u8..=100,
        zones in proptest::prelude::any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let built = |(at, (bits, weight)): (usize, &(u8, u32))| {
                let builder = instance(&at.to_string(), *weight).to_builder().zone(["a", "b"][at % 2]);
                builder.metadata("priority", (bits % 3).to_string()).build().unwrap()
            };
            let mut options = BalancerOptions::default().with_panic_threshold(threshold);
            if zones {
                options = options.with_zone(crate::Zone::new("a")).with_priorities(crate::Priorities::metadata("priority"));
            }
            let instances: Vec<_> = objections.iter().enumerate().map(built).collect();
            let (_backend, _held, balancer) = balanced(instances, Random, options).await;
            let weighty = |bits: u8| objections.iter().any(|(other, weight)| *weight > 0 && other & bits == 0);
            for (at, (bits, _)) in objections.iter().enumerate() {
                balancer.set_available(&at.to_string(), bits & 1 == 0);
                if bits & 2 != 0 {
                    sick(&balancer, &[&at.to_string()]);
                }
                if bits & 4 != 0 {
                    balancer.members()[at].begin_at(None).finish(Outcome::Unreachable);
                }
            }
            for built in [false, true] {
                if built {
                    heeded(&balancer).await;
                    let selection = balancer.inner.shared.selection.load();
                    let shares: f64 = selection.tiers().map(|tier| tier.share).sum();
                    assert!((shares - 1.0).abs() < 1e-6 && selection.tiers().count() == selection.more.len() + 1);
                }
                for _ in 0..50 {
                    let Ok(pick) = balancer.pick(&Context::default()) else {
                        assert!(!weighty(0));
                        continue;
                    };
                    let (bits, weight) = objections[pick.instance().id().parse::<usize>().unwrap()];
                    assert!(weight > 0);
                    assert!(!built || bits & 1 == 0 || !weighty(1), "{objections:?}");
                    let text = standing(&balancer, pick.instance().id());
                    assert!(!built || !text.contains("gets nothing"), "{text}");
                }
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_panics_does_not_freeze_the_set() {
    let filter = Filter::new("picky", |instance| {
        assert!(instance.id() != "poison", "as expected of it");
        true
    });
    let options = BalancerOptions::default().with_filter(filter);
    let (backend, _held, balancer) = balanced(fleet(2), RoundRobin::new(), options).await;
    let _poison = registered(&backend, instance("poison", 1)).await;
    let _other = registered(&backend, instance("other", 1)).await;
    knows(&balancer, &["0", "1", "other", "poison"]).await;
    assert_eq!(picked(&balancer), ["0", "1", "other"]);
    assert_eq!(standing(&balancer, "poison"), "poison: gets nothing: filtered out by \"picky\"");
}

/// Panics at one member.
struct Delicate;

impl PickerFactory for Delicate {
    fn build(&self, members: &[Member]) -> Box<dyn crate::Picker> {
        assert!(members.iter().all(|member| member.instance().id() != "poison"), "as expected of it");
        RoundRobin::new().build(members)
    }
}

#[tokio::test(start_paused = true)]
async fn a_picker_that_panics_neither_ends_the_balancer_nor_keeps_it_busy() {
    let (backend, _held, balancer) = balanced(fleet(2), Delicate, BalancerOptions::default()).await;
    let poison = registered(&backend, instance("poison", 1)).await;
    let two = async || (balancer.members().len() == 2).then_some(()).ok_or("not two");
    stays(Duration::from_secs(5), "the set from before", two).await;
    poison.deregister().await.unwrap();
    let _other = registered(&backend, instance("other", 1)).await;
    knows(&balancer, &["0", "1", "other"]).await;
}
