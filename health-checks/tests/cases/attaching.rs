//! Who is told what.

use discovery_core::picker::RoundRobin;
use discovery_core::{Balancer, Policy, Reason};
use discovery_health::Verdict;

use crate::stage::{Does, SECOND, Scripted, Stage, is_held_against, pass, picked, standing, until, verdict};

#[tokio::test(start_paused = true)]
async fn every_balancer_is_told_also_one_that_comes_later() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _all = stage.join(&["a", "b", "c"]).await;
    check.set("b", Does::Fail);
    let early = stage.balancer();
    let checker = stage.checker(&check);
    let _first = checker.attach(&early);
    verdict(&checker, "b", Verdict::Unhealthy).await;
    picked(&early, &["a", "c"]).await;
    let late = stage.balancer();
    let _second = checker.attach(&late);
    picked(&late, &["a", "c"]).await;
    let reasons = standing(&late, "b").unwrap().reasons().to_vec();
    assert!(matches!(&reasons[..], [Reason::Unhealthy(why)] if why.contains("out of order")), "{reasons:?}");
    let count = check.asked("a").len();
    pass(100 * SECOND).await;
    let more = check.asked("a").len() - count;
    assert!((90..=112).contains(&more), "{more} checks in 100 s: two balancers cost one check");
}

#[tokio::test(start_paused = true)]
async fn a_balancer_that_learns_of_an_instance_later_is_told_again() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _a = stage.join(&["a"]).await;
    let (behind, link) = stage.store.open("discovery", Policy::default()).unwrap();
    let balancer = Balancer::new(behind.watch("pay"), RoundRobin::new());
    picked(&balancer, &["a"]).await;
    link.cut();
    check.set("b", Does::Fail);
    let _b = stage.join(&["b"]).await;
    let checker = stage.checker(&check);
    let _attachment = checker.attach(&balancer);
    verdict(&checker, "b", Verdict::Unhealthy).await;
    assert!(standing(&balancer, "b").is_none(), "the balancer's registry is away");
    link.pass();
    until("the balancer knows b, and why not", || is_held_against(&balancer, "b", "out of order")).await;
    picked(&balancer, &["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_reason_is_always_the_newest() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _all = stage.join(&["a", "b"]).await;
    check.set("b", Does::Fail);
    let (balancer, checker) = (stage.balancer(), stage.checker(&check));
    let _attachment = checker.attach(&balancer);
    until("it fails", || is_held_against(&balancer, "b", "out of order")).await;
    check.set("b", Does::Hang);
    until("it hangs", || is_held_against(&balancer, "b", "no answer within 1s")).await;
    check.set("b", Does::Well);
    until("it is well", || standing(&balancer, "b").unwrap().reasons().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_told_is_taken_back_with_the_attachment() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _all = stage.join(&["a", "b"]).await;
    check.set("b", Does::Fail);
    let (balancer, other, checker) = (stage.balancer(), stage.balancer(), stage.checker(&check));
    let (attachment, _kept) = (checker.attach(&balancer), checker.attach(&other));
    picked(&balancer, &["a"]).await;
    picked(&other, &["a"]).await;
    drop(attachment);
    picked(&balancer, &["a", "b"]).await;
    pass(100 * SECOND).await;
    picked(&balancer, &["a", "b"]).await;
    picked(&other, &["a"]).await;
}
