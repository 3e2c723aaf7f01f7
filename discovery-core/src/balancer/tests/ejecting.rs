//! Outlier ejection, on paused time.

use super::*;
use crate::{FailurePercentage, Outliers, SuccessRate};

fn fleet(n: usize) -> Vec<Instance> {
    (0..n).map(|at| instance(&format!("{at:02}"), 1)).collect()
}

fn ejected(balancer: &Balancer) -> Vec<String> {
    let all = balancer.explain();
    all.iter().filter(|s| s.to_string().contains("ejected")).map(|s| s.instance().id().to_owned()).collect()
}

/// Sends so many requests to everybody, of which the given number fails at each.
fn sent(balancer: &Balancer, requests: usize, failed: impl Fn(&str) -> usize) {
    for member in balancer.members() {
        let bad = failed(member.instance().id());
        for at in 0..requests {
            // Never many in a row.
            let fails = at * bad / requests != (at + 1) * bad / requests;
            let outcome = if fails { Outcome::Failure } else { Outcome::Success };
            member.begin_at(None).finish(outcome);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p04_a_dead_instance_hears_one_request_until_it_is_tried_again() {
    for default in [BalancerOptions::default(), BalancerOptions::default().with_outliers(Outliers::default())] {
        let (_backend, _held, balancer) = balanced(fleet(3), RoundRobin::new(), default).await;
        let mut reached = Vec::new();
        let begun = Instant::now();
        // Whoever connects to it finds nobody, for five minutes.
        for _ in 0..30_000 {
            let pick = balancer.pick(&Context::default()).unwrap();
            if pick.instance().id() == "01" {
                reached.push(begun.elapsed().as_secs());
                pick.finish(Outcome::Unreachable);
            } else {
                pick.finish(Outcome::Success);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // At once, after 30 s, after 60 s more, and after 90 s more.
        assert_eq!(reached, [0, 30, 90, 180], "{reached:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn p04_of_requests_at_the_same_time_none_follows_the_first_that_failed() {
    let (_backend, _held, balancer) = balanced(fleet(3), RoundRobin::new(), BalancerOptions::default()).await;
    let open: Vec<_> = (0..30).map(|_| balancer.pick(&Context::default()).unwrap()).collect();
    for pick in open {
        let outcome = if pick.instance().id() == "01" { Outcome::Unreachable } else { Outcome::Success };
        pick.finish(outcome);
        // Before the task could do anything.
        if outcome == Outcome::Unreachable {
            assert!(!counts(&balancer, 30).contains_key("01"));
        }
    }
    heeded(&balancer).await;
    assert_eq!(balancer.candidates(), 2);
    assert_eq!(counts(&balancer, 30), BTreeMap::from([("00".to_owned(), 15), ("02".to_owned(), 15)]));
}

#[tokio::test(start_paused = true)]
async fn p04_no_more_are_ejected_than_the_limit_says() {
    let options = BalancerOptions::default().with_outliers(Outliers::default().with_max_ejection_percent(20));
    let (backend, held, balancer) = balanced(fleet(10), RoundRobin::new(), options).await;
    for id in ["03", "04", "05"] {
        ends_at(&balancer, id, Outcome::Unreachable);
    }
    heeded(&balancer).await;
    assert_eq!(ejected(&balancer), ["03", "04"]);
    assert_eq!(counts(&balancer, 80).len(), 8);
    // Who leaves makes room.
    held[3].deregister().await.unwrap();
    knows(&balancer, &["00", "01", "02", "04", "05", "06", "07", "08", "09"]).await;
    ends_at(&balancer, "05", Outcome::Unreachable);
    heeded(&balancer).await;
    // A fifth of nine is one, so nobody else goes until the first is back.
    assert_eq!(ejected(&balancer), ["04"]);
    tokio::time::sleep(Duration::from_secs(31)).await;
    ends_at(&balancer, "05", Outcome::Unreachable);
    assert_eq!(ejected(&balancer), ["05"]);
    drop(backend);
}

#[tokio::test(start_paused = true)]
async fn p04_an_ejection_and_a_lost_connection_are_two_things() {
    let (_backend, _held, balancer) = balanced(fleet(3), RoundRobin::new(), BalancerOptions::default()).await;
    ends_at(&balancer, "01", Outcome::Unreachable);
    balancer.set_available("01", false);
    balancer.set_available("01", true);
    heeded(&balancer).await;
    assert!(!counts(&balancer, 30).contains_key("01"));
    balancer.set_available("01", false);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(!counts(&balancer, 30).contains_key("01"));
    balancer.set_available("01", true);
    heeded(&balancer).await;
    assert_eq!(counts(&balancer, 30)["01"], 10);
}

#[tokio::test(start_paused = true)]
async fn p04_five_failures_in_a_row_eject_if_the_rule_is_on() {
    for (options, expected) in [
        (BalancerOptions::default(), 0),
        (BalancerOptions::default().with_outliers(None), 0),
        (BalancerOptions::default().with_outliers(Outliers::default()), 1),
        (BalancerOptions::default().with_outliers(Outliers::default().with_consecutive_failures(0)), 0),
    ] {
        let (_backend, _held, balancer) = balanced(fleet(3), RoundRobin::new(), options).await;
        (0..4).for_each(|_| ends_at(&balancer, "01", Outcome::Failure));
        assert_eq!(ejected(&balancer).len(), 0);
        ends_at(&balancer, "01", Outcome::Failure);
        assert_eq!(ejected(&balancer).len(), expected);
        if balancer.inner.shared.options.outliers.is_none() {
            ends_at(&balancer, "01", Outcome::Unreachable);
            assert_eq!(ejected(&balancer).len(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p04_a_success_rate_far_below_the_others_ejects() {
    let options = BalancerOptions::default().with_outliers(Outliers::default());
    let (_backend, _held, balancer) = balanced(fleet(6), RoundRobin::new(), options).await;
    let interval = Duration::from_millis(10_001);
    // Too few requests, then too few instances that have enough, then enough of both.
    sent(&balancer, 99, |id| if id == "02" { 30 } else { 1 });
    tokio::time::sleep(interval).await;
    assert_eq!(ejected(&balancer).len(), 0);
    sent(&balancer, 100, |id| if id == "02" { 30 } else { 1 });
    tokio::time::sleep(interval).await;
    assert_eq!(ejected(&balancer), ["02"]);
    let text = standing(&balancer, "02");
    assert!(text.contains("gets nothing") && text.contains("fewer of its requests succeeded"), "{text}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(ejected(&balancer).len(), 0, "what was judged once is not judged again");
    // As bad as all others.
    sent(&balancer, 100, |_| 30);
    tokio::time::sleep(interval).await;
    assert_eq!(ejected(&balancer).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn p04_too_many_failures_eject_whatever_the_others_do() {
    let rules = Outliers::default().with_success_rate(None::<SuccessRate>).with_consecutive_failures(0);
    let options = BalancerOptions::default().with_outliers(rules.with_max_ejection_percent(40));
    let (_backend, _held, balancer) = balanced(fleet(5), RoundRobin::new(), options).await;
    sent(&balancer, 100, |id| ["84", "85", "90", "0", "0"][id.parse::<usize>().unwrap()].parse().unwrap());
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(ejected(&balancer), ["01", "02"]);
}

/// Nothing but time wakes the task, and no selection is built where nothing changed.
#[tokio::test(start_paused = true)]
async fn l03_judging_builds_nothing_while_all_is_well() {
    let options = BalancerOptions::default().with_outliers(Outliers::default());
    let (_backend, _held, balancer) = balanced(fleet(5), RoundRobin::new(), options).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let number = balancer.inner.shared.selection.load().number;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(balancer.inner.shared.selection.load().number, number);
}

#[tokio::test(start_paused = true)]
async fn p04_who_is_ejected_already_does_not_hide_the_next() {
    let rules = Outliers::default().with_max_ejection_percent(50).with_failure_percentage(None::<FailurePercentage>);
    let options = BalancerOptions::default().with_outliers(rules);
    let (_backend, _held, balancer) = balanced(fleet(10), RoundRobin::new(), options).await;
    // The first fails in a row, and is out before rates are judged. With it the mean would be 0.86 and the least rate 0.27.
    sent(&balancer, 100, |id| match id {
        "00" => 100,
        "01" => 40,
        _ => 0,
    });
    tokio::time::sleep(Duration::from_millis(10_001)).await;
    assert_eq!(ejected(&balancer), ["00", "01"]);
}
