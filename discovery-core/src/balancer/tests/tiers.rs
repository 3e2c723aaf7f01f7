//! Filters, zones and priorities.

use super::*;
use crate::picker::{ConsistentHash, Ketama, Sticky};
use crate::{Comparison, Filter, Priorities, Zone};

fn placed(id: &str, zone: &str, priority: u32) -> Instance {
    let builder = instance(id, 1).to_builder().zone(zone).metadata("priority", priority.to_string());
    builder.build().unwrap()
}

/// So many instances in each of these zones and priorities: `a0`, `a1`, …, `b0`, ….
fn fleet(groups: &[(&str, u32, usize)]) -> Vec<Instance> {
    let of = |(at, (zone, priority, n)): (usize, &(&str, u32, usize))| {
        let letter = char::from(b'a' + at as u8);
        (0..*n).map(|n| placed(&format!("{letter}{n}"), zone, *priority)).collect::<Vec<_>>()
    };
    groups.iter().enumerate().flat_map(of).collect()
}

/// How many percent of many picks go to each group.
fn percents(balancer: &Balancer) -> BTreeMap<String, usize> {
    let mut groups = BTreeMap::new();
    for (id, count) in counts(balancer, 20_000) {
        *groups.entry(id[..1].to_owned()).or_insert(0) += count;
    }
    groups.values_mut().for_each(|count| *count = (*count + 100) / 200);
    groups
}

fn are(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(group, percent)| ((*group).to_owned(), *percent)).collect()
}

fn near(found: &BTreeMap<String, usize>, expected: &[(&str, usize)]) {
    let expected = are(expected);
    let close = found.iter().zip(&expected).all(|(a, b)| a.0 == b.0 && a.1.abs_diff(*b.1) <= 2);
    assert!(close && found.len() == expected.len(), "{found:?} instead of {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn filters_admit_and_the_others_are_named() {
    let built = |id: &str, version: &str| instance(id, 1).to_builder().version(version).build().unwrap();
    let options = BalancerOptions::default()
        .with_filter(Filter::scheme("grpc"))
        .with_filter(Filter::version(Comparison::AtLeast("1.10".into())));
    let fleet = [built("a", "1.9"), built("b", "1.10.1"), built("c", "2.0")];
    let (_backend, held, balancer) = balanced(fleet, RoundRobin::new(), options).await;
    assert_eq!(counts(&balancer, 10), BTreeMap::from([("b".to_owned(), 5), ("c".to_owned(), 5)]));
    assert_eq!(standing(&balancer, "a"), "a: gets nothing: filtered out by \"version >= 1.10\"");
    assert_eq!(balancer.candidates(), 2);
    // No health makes up for a filter.
    held[1].deregister().await.unwrap();
    balancer.set_available("c", false);
    held[2].update(|i| i.version("1.1")).await.unwrap();
    knows(&balancer, &["a", "c"]).await;
    let mut selections = balancer.selections();
    while balancer.pick(&Context::default()).is_ok() {
        selections.changed().await;
    }
    let text = balancer.pick(&Context::default()).unwrap_err().to_string();
    assert!(text.contains("2 known, no filter left any"), "{text}");
    held[0].update(|i| i.weight(0).version("1.11")).await.unwrap();
    selections.changed().await;
    let text = balancer.pick(&Context::default()).unwrap_err().to_string();
    assert!(text.contains("2 known, 1 filtered out, the others with weight 0"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn p04_the_own_zone_is_first_and_spills_over_by_what_is_available() {
    fastrand::seed(7);
    let options = BalancerOptions::default().with_zone(Zone::new("here"));
    let fleet = fleet(&[("here", 0, 10), ("there", 0, 10)]);
    let (_backend, _held, balancer) = balanced(fleet, RoundRobin::new(), options).await;
    // Each of the others is one in ten of the zone; 28 % too few are borne.
    let expected = [100, 100, 100, 98, 84, 70, 56, 42, 28, 14, 0];
    for (out, local) in expected.into_iter().enumerate() {
        let split: Vec<_> =
            [("a", local), ("b", 100 - local)].into_iter().filter(|(_, percent)| *percent > 0).collect();
        near(&percents(&balancer), &split);
        balancer.set_available(&format!("a{out}"), false);
        heeded(&balancer).await;
    }
    assert!(standing(&balancer, "b3").contains("gets its share"));
}

#[tokio::test(start_paused = true)]
async fn the_own_zone_spills_over_while_it_is_busier() {
    let options = BalancerOptions::default().with_zone(Zone::new("here"));
    let fleet = fleet(&[("here", 0, 1), ("there", 0, 3)]);
    let (_backend, _held, balancer) = balanced(fleet, RoundRobin::new(), options).await;
    let mut open = Vec::new();
    for _ in 0..70 {
        open.push(balancer.pick(&Context::default()).unwrap());
    }
    let local = open.iter().filter(|pick| pick.instance().id() == "a0").count();
    // Four times as many as at each of the three others.
    assert!((36..=44).contains(&local), "{local} of 70");
    assert!(standing(&balancer, "b0").contains("in another zone has 0.0 % of all requests"));
    open.clear();
    assert_eq!(percents(&balancer), are(&[("a", 100)]));
    assert_eq!(balancer.candidates(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_spill_factor_load_does_not_matter() {
    let options = BalancerOptions::default().with_zone(Zone::new("here").with_spill_factor(None));
    let fleet = fleet(&[("here", 0, 1), ("there", 0, 3)]);
    let (_backend, held, balancer) = balanced(fleet, RoundRobin::new(), options).await;
    let open: Vec<_> = (0..100).map(|_| balancer.pick(&Context::default()).unwrap()).collect();
    assert!(open.iter().all(|pick| pick.instance().id() == "a0"));
    assert!(standing(&balancer, "b1").contains("gets nothing: priority 0 in another zone"));
    // Who waits stands in at once.
    balancer.set_available("a0", false);
    assert!(!counts(&balancer, 10).contains_key("a0"));
    // A zone that is gone is not missed.
    held[0].deregister().await.unwrap();
    knows(&balancer, &["b0", "b1", "b2"]).await;
    assert_eq!(counts(&balancer, 30).into_values().collect::<Vec<_>>(), [10; 3]);
    assert_eq!(standing(&balancer, "b1"), "b1: gets its share");
}

#[tokio::test(start_paused = true)]
async fn p04_the_next_priority_takes_over_by_what_is_missing() {
    fastrand::seed(7);
    let options = BalancerOptions::default().with_priorities(Priorities::metadata("priority"));
    let fleet = fleet(&[("z", 1, 10), ("z", 2, 10), ("z", 7, 2)]);
    let (_backend, _held, balancer) = balanced(fleet, RoundRobin::new(), options).await;
    let out = async |ids: std::ops::Range<usize>, group: &str| {
        ids.for_each(|n| balancer.set_available(&format!("{group}{n}"), false));
        heeded(&balancer).await;
    };
    assert_eq!(percents(&balancer), are(&[("a", 100)]));
    assert!(standing(&balancer, "b0").contains("gets nothing: priority 2 has 0.0 %"));
    out(0..5, "a").await;
    near(&percents(&balancer), &[("a", 70), ("b", 30)]);
    out(0..9, "b").await;
    near(&percents(&balancer), &[("a", 70), ("b", 14), ("c", 16)]);
    assert!(standing(&balancer, "c0").contains("gets less than its share: priority 7 has 16.0 %"));
    out(5..10, "a").await;
    near(&percents(&balancer), &[("b", 14), ("c", 86)]);
    assert_eq!(balancer.candidates(), 3);
}

#[tokio::test(start_paused = true)]
async fn p04_no_panic_while_another_priority_can_take_over() {
    let options = BalancerOptions::default().with_priorities(Priorities::new(|i| u32::from(i.id() >= "b")));
    let fleet = fleet(&[("z", 0, 4), ("z", 0, 4)]);
    let (_backend, _held, balancer) = balanced(fleet, RoundRobin::new(), options).await;
    for n in 0..3 {
        balancer.set_health(&format!("a{n}"), Condition::Unhealthy("slow".into()));
    }
    heeded(&balancer).await;
    near(&percents(&balancer), &[("a", 35), ("b", 65)]);
    assert!(!counts(&balancer, 1_000).contains_key("a0"));
    for n in 0..3 {
        balancer.set_health(&format!("b{n}"), Condition::Unhealthy("slow".into()));
    }
    heeded(&balancer).await;
    near(&percents(&balancer), &[("a", 50), ("b", 50)]);
    assert_eq!(counts(&balancer, 1_000).len(), 8);
}

#[tokio::test(start_paused = true)]
async fn p05_round_robin_is_exact_in_each_tier() {
    let options = BalancerOptions::default().with_zone(Zone::new("here"));
    let fleet = fleet(&[("here", 0, 6), ("there", 0, 5)]);
    let (_backend, _held, balancer) = balanced(fleet, RoundRobin::new(), options).await;
    for id in ["a0", "a1", "a2"] {
        balancer.set_available(id, false);
    }
    heeded(&balancer).await;
    let counts = counts(&balancer, 1_001);
    for group in ["a", "b"] {
        let of: Vec<_> = counts.iter().filter(|(id, _)| id.starts_with(group)).map(|(_, count)| *count).collect();
        assert!(of.iter().max().unwrap() - of.iter().min().unwrap() <= 1, "{counts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r09_the_draining_leave_to_the_next_tier() {
    let options = BalancerOptions::default().with_zone(Zone::new("here"));
    let (_backend, held, balancer) = balanced(fleet(&[("here", 0, 1), ("there", 0, 2)]), Random, options).await;
    held[0].update(|i| i.state(State::Draining)).await.unwrap();
    let mut selections = balancer.selections();
    while counts(&balancer, 10).contains_key("a0") {
        selections.changed().await;
    }
    assert_eq!(standing(&balancer, "a0"), "a0: gets nothing: it is draining while others serve");
}

/// Many threads pick, and report every outcome, while instances come, go, fall ill and recover; with everything switched on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p01_picks_race_with_everything_around_them() {
    let outliers = crate::Outliers::default().with_ejection_time(Duration::from_millis(5), Duration::from_millis(20));
    let options = BalancerOptions::default()
        .with_filter(Filter::scheme("grpc"))
        .with_zone(Zone::new("here"))
        .with_priorities(Priorities::metadata("priority"))
        .with_slow_start(crate::SlowStart::new(Duration::from_millis(20)))
        .with_outliers(outliers.with_interval(Duration::from_millis(5)).with_max_ejection_percent(60));
    let all = fleet(&[("here", 0, 3), ("there", 0, 3), ("here", 1, 2)]);
    let (backend, _held, balancer) = balanced(all, RoundRobin::new(), options).await;
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (mut reader, stop) = (balancer.reader(), stop.clone());
            std::thread::spawn(move || {
                let outcomes = [Outcome::Success, Outcome::Failure, Outcome::Unreachable, Outcome::Cancelled];
                let mut turn = n;
                while !stop.load(Ordering::Relaxed) || turn < 1_000 {
                    reader.pick(&Context::default()).unwrap().finish(outcomes[turn / 7 % 4]);
                    turn += 1;
                }
            })
        })
        .collect();
    let mut selections = balancer.selections();
    for round in 0..20 {
        let joined = registered(&backend, placed(&format!("x{round}"), "here", round % 2)).await;
        balancer.set_health(&format!("a{}", round % 3), Condition::Unhealthy("slow".into()));
        balancer.set_available(&format!("b{}", round % 3), round % 2 == 0);
        selections.changed().await;
        assert!(balancer.explain().len() >= 8);
        balancer.set_health(&format!("a{}", round % 3), Condition::Healthy);
        joined.deregister().await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // Who left, was ejected or came back leaves no trace in the count.
    let all: Vec<_> = (0..8).map(|at| balancer.members()[at].instance().id().to_owned()).collect();
    all.iter().for_each(|id| balancer.set_available(id, true));
    tokio::time::timeout(Duration::from_secs(10), async {
        while balancer.explain().iter().any(|standing| standing.to_string().contains("ejected")) {
            selections.changed().await;
        }
    })
    .await
    .unwrap();
    assert!(balancer.members().iter().all(|member| member.pending() == 0 && member.is_available()));
}

#[tokio::test(start_paused = true)]
async fn p06_the_requests_of_a_key_stay_in_one_zone_however_the_zones_share() {
    for factory in [
        Box::new(ConsistentHash::with_slots(1 << 12)) as Box<dyn PickerFactory>,
        Box::new(Ketama::new()),
        Box::new(Sticky::new(RoundRobin::new())),
    ] {
        let fleet = fleet(&[("here", 0, 4), ("there", 0, 4)]);
        let options = BalancerOptions::default().with_zone(Zone::new("here"));
        let (_backend, _held, balancer) = balanced(fleet, factory, options).await;
        // Two of four locals are left, which have 70 % of the requests.
        for id in ["a0", "a1"] {
            assert!(balancer.set_health(id, Condition::Unhealthy("503".into())));
        }
        heeded(&balancer).await;
        let (mut elsewhere, mut places) = (0, Vec::new());
        for key in 0..1_000u32 {
            let picks = (0..5).map(|_| balancer.pick(&Context::default().with_key(&key.to_le_bytes())).unwrap());
            let ids: Vec<_> = picks.map(|pick| pick.instance().id().to_owned()).collect();
            assert!(ids.iter().all(|id| *id == ids[0]), "{key}: {ids:?}");
            elsewhere += u32::from(ids[0].starts_with('b'));
            places.push(ids[0].clone());
        }
        // No key has taken the place of another meanwhile.
        for (key, place) in (0..1_000u32).zip(&places) {
            let pick = balancer.pick(&Context::default().with_key(&key.to_le_bytes())).unwrap();
            assert_eq!(pick.instance().id(), place, "{key}");
        }
        assert!((250..350).contains(&elsewhere), "{elsewhere}");
        // Those that are here have more than their share, not less.
        assert!(standing(&balancer, "a2").starts_with("a2: gets its share: "), "{}", standing(&balancer, "a2"));
        assert!(
            standing(&balancer, "b2").starts_with("b2: gets less than its share: "),
            "{}",
            standing(&balancer, "b2")
        );
    }
}
