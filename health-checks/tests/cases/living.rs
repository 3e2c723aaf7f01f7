//! What lives how long.

use discovery_health::{Checker, CheckerOptions, Verdict};

use crate::stage::{Does, SECOND, Scripted, Stage, pass, until, verdict};

#[tokio::test(start_paused = true)]
async fn checks_end_with_the_last_handle() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _all = stage.join(&["a", "b"]).await;
    check.set("b", Does::Hang);
    let balancer = stage.balancer();
    let checker = stage.checker(&check);
    let (clone, attachment) = (checker.clone(), checker.attach(&balancer));
    verdict(&checker, "b", Verdict::Unhealthy).await;
    drop((checker, clone));
    let count = check.count();
    until("the attachment keeps the checker", || check.count() > count + 10).await;
    until("a check is under way", || check.running().0 == 1).await;
    drop(attachment);
    let count = check.count();
    until("the check under way is given up", || check.running().0 == 0).await;
    pass(600 * SECOND).await;
    assert_eq!(check.count(), count, "no check begins after the end");
}

#[tokio::test(start_paused = true)]
async fn who_is_gone_is_not_checked_and_begins_anew_on_return() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let registration = stage.join(&["a"]).await.remove(0);
    check.set("a", Does::Hang);
    let checker = stage.checker(&check);
    verdict(&checker, "a", Verdict::Unhealthy).await;
    until("a check is under way", || check.running().0 == 1).await;
    registration.deregister().await.unwrap();
    until("it left", || checker.reports().is_empty()).await;
    until("the check under way is given up", || check.running().0 == 0).await;
    let count = check.count();
    pass(600 * SECOND).await;
    assert_eq!(check.count(), count);
    let _again = stage.join(&["a"]).await;
    until("it came back", || checker.report("a").is_some()).await;
    let report = checker.report("a").unwrap();
    assert_eq!((report.verdict(), report.checks()), (Verdict::Unknown, 0));
    assert_eq!(verdict(&checker, "a", Verdict::Unhealthy).await.checks(), 3);
}

#[tokio::test(start_paused = true)]
async fn another_address_is_another_target_and_another_weight_is_not() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let registration = stage.join(&["a"]).await.remove(0);
    check.set("a", Does::Fail);
    let balancer = stage.balancer();
    let checker = stage.checker(&check);
    let _attachment = checker.attach(&balancer);
    verdict(&checker, "a", Verdict::Unhealthy).await;
    registration.update(|now| now.weight(7)).await.unwrap();
    until("the weight changed", || balancer.members().iter().any(|member| member.weight() == 7)).await;
    let before = checker.report("a").unwrap();
    pass(10 * SECOND).await;
    let report = checker.report("a").unwrap();
    assert!(report.verdict() == Verdict::Unhealthy && report.checks() > before.checks(), "{report}");
    registration.update(|now| now.endpoints(["grpc://elsewhere:1".parse().unwrap()])).await.unwrap();
    until("the new address begins anew", || checker.report("a").unwrap().verdict() != Verdict::Unhealthy).await;
    assert!(balancer.members().iter().all(|member| member.is_available()), "the balancer has heard of it");
    assert_eq!(verdict(&checker, "a", Verdict::Healthy).await.endpoint().unwrap().host(), "elsewhere");
    let count = check.asked("a").len();
    pass(60 * SECOND).await;
    assert_eq!(check.asked("a").len(), count, "the old address is left alone");
}

#[tokio::test(start_paused = true)]
async fn w05_the_last_set_is_checked_on_when_the_backend_is_closed() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _a = stage.join(&["a"]).await;
    // Another handle, as a registration would be withdrawn with its own.
    let other = stage.store.connect();
    let (watch, options) = (other.watch("pay"), CheckerOptions::default().with_interval(SECOND));
    let checker = Checker::with_options(watch.clone(), check.clone(), options);
    verdict(&checker, "a", Verdict::Healthy).await;
    other.close(SECOND).await.unwrap();
    assert!(watch.is_closed());
    check.set("a", Does::Fail);
    verdict(&checker, "a", Verdict::Unhealthy).await;
}
