//! Whether a page answers well.

use std::io;

use discovery_core::ErrorKind;
use discovery_harness::Proxy;
use discovery_health::{HttpCheck, Verdict};

use crate::stage::{HttpServer, Stage, is_held_against, picked, until, verdict};

const WELL: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[tokio::test]
async fn a_503_is_unhealthy_and_a_200_is_healthy_again() {
    let (server, other) = (HttpServer::start(WELL).await, HttpServer::start(WELL).await);
    let stage = Stage::set();
    let _a = stage.register("a", format!("http://{}", server.address)).await;
    let _b = stage.register("b", format!("http://{}", other.address)).await;
    let (balancer, checker) = (stage.balancer(), stage.quick(HttpCheck::new("/ready?deep=1").unwrap()));
    let _attachment = checker.attach(&balancer);
    verdict(&checker, "a", Verdict::Healthy).await;
    picked(&balancer, &["a", "b"]).await;
    server.status("503 Service Unavailable");
    picked(&balancer, &["b"]).await;
    until("the reason is told", || is_held_against(&balancer, "a", "GET /ready?deep=1 answered 503")).await;
    server.status("200 OK");
    picked(&balancer, &["a", "b"]).await;
    let request = server.request().to_ascii_lowercase();
    assert!(request.starts_with("get /ready?deep=1 http/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: {}\r\n", server.address)), "{request}");
    assert!(request.contains("user-agent: discovery-health/"), "{request}");
}

#[tokio::test]
async fn statuses_are_well_as_far_as_the_caller_says() {
    let server = HttpServer::start(WELL).await;
    let stage = Stage::set();
    let _a = stage.register("a", format!("http://{}", server.address)).await;
    let strict = HttpCheck::default().with_statuses(200..=200);
    for (status, usual, strictly) in [
        ("200 OK", Verdict::Healthy, Verdict::Healthy),
        ("302 Found", Verdict::Healthy, Verdict::Unhealthy),
        ("399 Odd", Verdict::Healthy, Verdict::Unhealthy),
        ("400 Bad Request", Verdict::Unhealthy, Verdict::Unhealthy),
        ("404 Not Found", Verdict::Unhealthy, Verdict::Unhealthy),
        ("500 Internal Server Error", Verdict::Unhealthy, Verdict::Unhealthy),
    ] {
        server.status(status);
        verdict(&stage.quick(HttpCheck::default()), "a", usual).await;
        verdict(&stage.quick(strict.clone()), "a", strictly).await;
    }
}

#[tokio::test]
async fn silence_garbage_and_early_ends_are_failures() -> io::Result<()> {
    let server = HttpServer::start(WELL).await;
    let proxy = Proxy::start(server.address).await?;
    let stage = Stage::set();
    let _a = stage.register("a", format!("http://{}", proxy.address())).await;
    let checker = stage.quick(HttpCheck::default());
    verdict(&checker, "a", Verdict::Healthy).await;
    proxy.freeze().await?;
    let report = verdict(&checker, "a", Verdict::Unhealthy).await;
    assert_eq!(report.last().unwrap().failure().unwrap().kind(), ErrorKind::DeadlineExceeded);
    proxy.pass().await?;
    verdict(&checker, "a", Verdict::Healthy).await;
    for answer in ["", "HTTP/1.1 2", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 999999 No\r\n\r\n"] {
        let broken = HttpServer::start(answer).await;
        let _b = stage.register("b", format!("http://{}", broken.address)).await;
        let report = verdict(&checker, "b", Verdict::Unhealthy).await;
        assert_eq!(report.last().unwrap().failure().unwrap().kind(), ErrorKind::Unavailable, "{answer:?}");
    }
    Ok(())
}
