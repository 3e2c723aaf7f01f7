//! How often and how many at once.

use std::time::Duration;

use discovery_core::RegistrationState;
use discovery_health::{CheckerOptions, Slots, Verdict};

use crate::stage::{Does, SECOND, Scripted, Stage, pass, until};

/// What the paused clock, which goes in steps of a millisecond, may add.
const TICK: Duration = Duration::from_millis(2);

#[tokio::test(start_paused = true)]
async fn waits_stay_within_the_jitter_whatever_is_found() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _all = stage.join(&["well", "sick", "flapping"]).await;
    check.set("sick", Does::Fail);
    check.set("flapping", Does::Flap);
    let begun = tokio::time::Instant::now();
    let options = CheckerOptions::default().with_interval(10 * SECOND).with_jitter_percent(20);
    let checker = stage.checker_with(check.clone(), options);
    pass(2_000 * SECOND).await;
    for id in ["well", "sick", "flapping"] {
        let asked = check.asked(id);
        assert!(asked[0] - begun <= 10 * SECOND + TICK, "{id}: first after {:?}", asked[0] - begun);
        let waits: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*least >= 8 * SECOND && *most <= 12 * SECOND + TICK, "{id}: {least:?} to {most:?}");
        assert!(*most - *least > SECOND, "{id} has a jitter");
    }
    assert_eq!(checker.report("flapping").unwrap().verdict(), Verdict::Healthy, "no three failures in a row");
}

#[tokio::test(start_paused = true)]
async fn checks_of_a_set_that_comes_at_once_are_spread() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let ids: Vec<_> = (0..100).map(|number| format!("i{number}")).collect();
    let _all = stage.join(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    check.takes(SECOND / 10);
    let _checker = stage.checker_with(check.clone(), CheckerOptions::default().with_interval(10 * SECOND));
    pass(100 * SECOND).await;
    // One is expected; with a hundred in step there would be the bound, 64.
    let (_, most) = check.running();
    assert!((1..=12).contains(&most), "{most} at once");
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_bound_run_at_once_and_waiting_is_no_failure() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let ids: Vec<_> = (0..50).map(|number| format!("i{number}")).collect();
    let _all = stage.join(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // Two checkers with 100 checks between them that take half the timeout: a round of all takes twelve seconds.
    check.takes(SECOND / 2);
    let options = CheckerOptions::default().with_interval(SECOND).with_slots(Slots::new(4));
    let checkers =
        [stage.checker_with(check.clone(), options.clone()), stage.checker_with(check.clone(), options.clone())];
    pass(60 * SECOND).await;
    assert_eq!(check.running().1, 4, "the bound is reached and kept");
    for report in checkers.iter().flat_map(|checker| checker.reports()) {
        assert!(report.verdict() == Verdict::Healthy && report.checks() >= 2, "{report}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_and_goes_is_not_checked_more_often_than_who_stays() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let checker = stage.checker_with(check.clone(), CheckerOptions::default().with_interval(10 * SECOND));
    for _ in 0..300 {
        let registration = stage.join(&["a"]).await.remove(0);
        until("it came", || checker.report("a").is_some()).await;
        pass(SECOND).await;
        registration.deregister().await.unwrap();
        assert!(matches!(registration.state(), RegistrationState::Closed));
        until("it left", || checker.report("a").is_none()).await;
    }
    // Each second has one in ten intervals: 30 checks, give or take six standard deviations.
    let asked = check.asked("a").len();
    assert!((1..=62).contains(&asked), "{asked} checks in 300 s");
}
