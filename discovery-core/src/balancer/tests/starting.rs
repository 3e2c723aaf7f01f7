//! Slow start, on paused time.

use super::*;
use crate::SlowStart;
use crate::conformance::eventually;

const WINDOW: Duration = Duration::from_secs(60);

fn options() -> BalancerOptions {
    BalancerOptions::default().with_slow_start(SlowStart::new(WINDOW))
}

/// The share of a newcomer beside two others that are there: measured against the mean of the others.
fn share(balancer: &Balancer) -> f64 {
    let counts = counts(balancer, 30_000);
    let of = |id: &str| counts.get(id).copied().unwrap_or(0) as f64;
    of("c") / ((of("a") + of("b")) / 2.0)
}

#[tokio::test(start_paused = true)]
async fn p07_who_joins_takes_its_share_gradually_whatever_the_picker() {
    fastrand::seed(7);
    let pickers: [(&str, Box<dyn PickerFactory>); 4] = [
        ("random", Box::new(|_: &[Member]| Random)),
        ("round robin", Box::new(RoundRobin::new())),
        ("weighted", Box::new(WeightedRoundRobin::new())),
        ("two", Box::new(PowerOfTwo)),
    ];
    for (name, factory) in pickers {
        let (backend, _held, balancer) = balanced([instance("a", 1), instance("b", 1)], factory, options()).await;
        let even = counts(&balancer, 30_000);
        assert!(even["a"].abs_diff(even["b"]) < 1_000, "those of the first set are there already: {even:?}");
        tokio::time::sleep(Duration::from_secs(90)).await;
        let _c = registered(&backend, instance("c", 1)).await;
        knows(&balancer, &["a", "b", "c"]).await;
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(share(&balancer));
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        for (seen, expected) in seen.iter().zip([0.1, 0.25, 0.5, 0.75, 1.0]) {
            // A step of 3 s, twice.
            assert!((expected - 0.12..expected + 0.03).contains(seen), "{name}: {seen} for {expected}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p07_round_robin_stays_exact_for_the_others_meanwhile() {
    fastrand::seed(7);
    let fleet = ["a", "b", "d", "e"].map(|id| instance(id, 1));
    let (backend, _held, balancer) = balanced(fleet, RoundRobin::new(), options()).await;
    let _c = registered(&backend, instance("c", 1)).await;
    knows(&balancer, &["a", "b", "c", "d", "e"]).await;
    let counts = counts(&balancer, 1_003);
    let others: Vec<_> = counts.iter().filter(|(id, _)| *id != "c").map(|(_, count)| count).collect();
    assert!(**others.iter().max().unwrap() - **others.iter().min().unwrap() <= 1, "{counts:?}");
    assert!((5..60).contains(&counts["c"]), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn p07_steps_are_built_only_while_somebody_starts() {
    let (backend, _held, balancer) = balanced([instance("a", 100)], RoundRobin::new(), options()).await;
    let number = || balancer.inner.shared.selection.load().number;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let before = number();
    // Ten newcomers at different times share their steps.
    let mut held = Vec::new();
    for n in 0..10 {
        held.push(registered(&backend, instance(&format!("b{n}"), 100)).await);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    tokio::time::sleep(WINDOW * 2).await;
    let built = number() - before;
    assert!((30..=10 + 26).contains(&built), "{built} selections");
    let after = number();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(number(), after);
    assert!(balancer.inner.shared.selection.load().first.keeps.is_none());
}

#[tokio::test(start_paused = true)]
async fn p07_all_newcomers_share_alike_and_one_alone_takes_all() {
    let (backend, _held, balancer) = balanced([], RoundRobin::new(), options()).await;
    let _a = registered(&backend, instance("a", 1)).await;
    knows(&balancer, &["a"]).await;
    assert_eq!(counts(&balancer, 10)["a"], 10);
    let _b = registered(&backend, instance("b", 1)).await;
    knows(&balancer, &["a", "b"]).await;
    assert_eq!(counts(&balancer, 1_000).into_values().collect::<Vec<_>>(), [500, 500]);
}

#[tokio::test(start_paused = true)]
async fn p07_the_weight_that_a_picker_sees_grows_by_the_watchers_clock() {
    let (backend, _held, balancer) = balanced([instance("a", 100)], WeightedRoundRobin::new(), options()).await;
    // What the provider says of its start does not matter.
    let long_ago = instance("b", 100).to_builder().started_at(std::time::UNIX_EPOCH).build().unwrap();
    let b = registered(&backend, long_ago).await;
    knows(&balancer, &["a", "b"]).await;
    let weights = || {
        let selection = balancer.inner.shared.selection.load();
        selection.first.members.iter().map(Member::weight).collect::<Vec<_>>()
    };
    assert_eq!(weights(), [100, 10]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(weights()[0] == 100 && (40..=50).contains(&weights()[1]), "{:?}", weights());
    // An update is no new start, and everybody's record keeps its weight.
    b.update(|i| i.weight(200)).await.unwrap();
    balancer.selections().changed().await;
    assert!((80..=100).contains(&weights()[1]), "{:?}", weights());
    assert_eq!(balancer.members().iter().map(Member::weight).collect::<Vec<_>>(), [100, 200]);
    assert!(standing(&balancer, "b").contains("gets less than its share: it starts slowly, at "));
    tokio::time::sleep(WINDOW).await;
    assert_eq!(weights(), [100, 200]);
    assert_eq!(standing(&balancer, "b"), "b: gets its share");
}

#[tokio::test(start_paused = true)]
async fn p07_another_process_under_the_same_id_starts_slowly_too() {
    fastrand::seed(7);
    let fleet = ["a", "b", "c"].map(|id| instance(id, 1));
    let (_backend, held, balancer) = balanced(fleet, Random, options()).await;
    assert!(share(&balancer) > 0.9);
    let c = held.iter().find(|held| held.instance().id() == "c").unwrap();
    let later = c.instance().started_at() + Duration::from_secs(1);
    c.update(|c| c.started_at(later)).await.unwrap();
    let starts = async || Some(share(&balancer)).filter(|share| *share < 0.2).ok_or(());
    assert!(eventually(WINDOW, "c to start slowly", starts).await > 0.05);
    tokio::time::sleep(WINDOW * 2).await;
    assert!(share(&balancer) > 0.9);
}
