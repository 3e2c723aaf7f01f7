//! Verdicts fall at the thresholds, and reports say what happened.

use discovery_core::ErrorKind;
use discovery_health::{CheckerOptions, Verdict};

use crate::stage::{Does, SECOND, Scripted, Stage, until, verdict};

#[tokio::test(start_paused = true)]
async fn three_failures_in_a_row_make_unhealthy_and_one_success_heals() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _a = stage.join(&["a"]).await;
    check.set("a", Does::Fail);
    let checker = stage.checker(&check);
    until("it is unhealthy", || {
        let Some(report) = checker.report("a") else { return false };
        let expected = if report.checks() < 3 { Verdict::Unknown } else { Verdict::Unhealthy };
        assert_eq!(report.verdict(), expected, "after {} checks", report.checks());
        report.verdict() == Verdict::Unhealthy
    })
    .await;
    let report = checker.report("a").unwrap();
    assert_eq!((report.checks(), report.in_a_row()), (3, 3));
    assert!(report.why().unwrap().contains("as it should be"), "{report}");
    check.set("a", Does::Well);
    let healed = verdict(&checker, "a", Verdict::Healthy).await;
    assert_eq!((healed.checks(), healed.why()), (4, None));
    assert!(healed.last().unwrap().failure().is_none() && healed.since() >= report.since());
}

#[tokio::test(start_paused = true)]
async fn thresholds_are_the_callers_to_set() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _a = stage.join(&["a"]).await;
    check.set("a", Does::Fail);
    let options = CheckerOptions::default().with_interval(SECOND).with_unhealthy_after(1).with_healthy_after(4);
    let checker = stage.checker_with(check.clone(), options);
    assert_eq!(verdict(&checker, "a", Verdict::Unhealthy).await.checks(), 1);
    check.set("a", Does::Well);
    until("one check has succeeded", || checker.report("a").unwrap().checks() == 2).await;
    let report = checker.report("a").unwrap();
    assert!(report.verdict() == Verdict::Unhealthy && report.last().unwrap().failure().is_none());
    assert!(report.why().is_some(), "it is still unhealthy for what was found last");
    assert_eq!(verdict(&checker, "a", Verdict::Healthy).await.checks(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_has_failed_at_its_timeout() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _a = stage.join(&["a"]).await;
    check.set("a", Does::Hang);
    let checker = stage.checker(&check);
    let report = verdict(&checker, "a", Verdict::Unhealthy).await;
    let last = report.last().unwrap();
    assert_eq!(last.failure().unwrap().kind(), ErrorKind::DeadlineExceeded);
    assert!(last.took() >= SECOND && last.took() < SECOND * 11 / 10, "{:?}", last.took());
    assert!(report.why().unwrap().contains("no answer within 1s"), "{report}");
    assert_eq!(check.running(), (0, 1), "what timed out was given up, and none ran beside it");
}

#[tokio::test(start_paused = true)]
async fn a_check_that_panics_has_failed_and_goes_on() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _a = stage.join(&["a"]).await;
    check.set("a", Does::Panic);
    let checker = stage.checker(&check);
    let report = verdict(&checker, "a", Verdict::Unhealthy).await;
    assert!(report.why().unwrap().contains("panicked"), "{report}");
    check.set("a", Does::Well);
    verdict(&checker, "a", Verdict::Healthy).await;
}
