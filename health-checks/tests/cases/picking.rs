//! What balancers make of it.

use discovery_core::{Instance, Traffic};
use discovery_health::{CheckerOptions, Verdict};

use crate::stage::{Does, SECOND, Scripted, Stage, is_held_against, pass, picked, picks, standing, until, verdict};

#[tokio::test(start_paused = true)]
async fn the_unhealthy_is_picked_no_more_and_then_again() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _all = stage.join(&["a", "b", "c"]).await;
    let (balancer, checker) = (stage.balancer(), stage.checker(&check));
    let _attachment = checker.attach(&balancer);
    picked(&balancer, &["a", "b", "c"]).await;
    for _ in 0..3 {
        check.set("b", Does::Fail);
        verdict(&checker, "b", Verdict::Unhealthy).await;
        assert_eq!(picks(&balancer, 100).get("b"), None, "from the verdict on");
        assert_eq!(standing(&balancer, "b").unwrap().traffic(), Traffic::None);
        check.set("b", Does::Well);
        verdict(&checker, "b", Verdict::Healthy).await;
        picked(&balancer, &["a", "b", "c"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn p04_with_everybody_unhealthy_all_are_picked() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _all = stage.join(&["a", "b", "c"]).await;
    let (balancer, checker) = (stage.balancer(), stage.checker(&check));
    let _attachment = checker.attach(&balancer);
    for id in ["a", "b", "c"] {
        check.set(id, Does::Fail);
    }
    for id in ["a", "b", "c"] {
        verdict(&checker, id, Verdict::Unhealthy).await;
    }
    picked(&balancer, &["a", "b", "c"]).await;
    let text = standing(&balancer, "a").unwrap().to_string();
    assert!(text.contains("out of order") && text.contains("objections are ignored"), "{text}");
    check.set("a", Does::Well);
    check.set("b", Does::Well);
    picked(&balancer, &["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_a_fitting_endpoint_is_not_checked_and_counts_as_healthy() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let _a = stage.register("a", "udp://a:1").await;
    let _b = stage.join(&["b"]).await;
    let (balancer, checker) = (stage.balancer(), stage.checker(&check));
    let _attachment = checker.attach(&balancer);
    check.set("a", Does::Fail);
    check.set("b", Does::Fail);
    verdict(&checker, "b", Verdict::Unhealthy).await;
    pass(100 * SECOND).await;
    let report = checker.report("a").unwrap();
    assert_eq!((report.verdict(), report.checks(), report.endpoint()), (Verdict::Unchecked, 0, None));
    picked(&balancer, &["a"]).await;
    assert!(is_held_against(&balancer, "b", "out of order"));
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_is_the_first_of_the_schemes_in_their_order() {
    let (stage, check) = (Stage::set(), Scripted::default());
    let endpoints = ["http://web:1", "grpc://calls:1", "admin://admin:1"].map(|endpoint| endpoint.parse().unwrap());
    let instance = Instance::builder("pay").id("a").endpoints(endpoints).build().unwrap();
    let _a = stage.backend.register(instance, Default::default()).await.unwrap();
    for (schemes, expected) in
        [(None, Some("calls")), (Some(&["ADMIN", "http"][..]), Some("admin")), (Some(&["tcp"]), None)]
    {
        let mut options = CheckerOptions::default();
        if let Some(schemes) = schemes {
            options = options.with_schemes(schemes.iter().copied());
        }
        let checker = stage.checker_with(check.clone(), options);
        until("it is known", || checker.report("a").is_some()).await;
        let report = checker.report("a").unwrap();
        assert_eq!(report.endpoint().map(|endpoint| endpoint.host()), expected, "{schemes:?}");
    }
}
