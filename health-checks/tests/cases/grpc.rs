//! What the instance says of itself.

use std::io;

use discovery_core::{ErrorKind, Registration};
use discovery_greeter::{GreeterServer, Named};
use discovery_harness::Proxy;
use discovery_health::{GrpcCheck, Report, Verdict};
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

use crate::stage::{HttpServer, Stage, is_held_against, picked, serve, until, verdict};

type Service = GreeterServer<Named>;
const SERVICE: &str = "greeter.v1.Greeter";

async fn serving() -> (HealthReporter, std::net::SocketAddr, tokio::task::JoinSet<()>) {
    let (reporter, service) = health_reporter();
    reporter.set_service_status(SERVICE, ServingStatus::Serving).await;
    let (address, tasks) = serve(Routes::new(service)).await;
    (reporter, address, tasks)
}

#[tokio::test]
async fn not_serving_is_unhealthy_until_it_serves_again() {
    let (reporter, first, _one) = serving().await;
    let (_other, second, _two) = serving().await;
    let stage = Stage::set();
    let _a = stage.register("a", format!("grpc://{first}")).await;
    let _b = stage.register("b", format!("grpc://{second}")).await;
    let (balancer, checker) = (stage.balancer(), stage.quick(GrpcCheck::of(SERVICE)));
    let _attachment = checker.attach(&balancer);
    verdict(&checker, "a", Verdict::Healthy).await;
    picked(&balancer, &["a", "b"]).await;
    reporter.set_service_status(SERVICE, ServingStatus::NotServing).await;
    picked(&balancer, &["b"]).await;
    until("the reason is told", || is_held_against(&balancer, "a", &format!("{SERVICE:?} is NOT_SERVING"))).await;
    reporter.set_service_status(SERVICE, ServingStatus::Unknown).await;
    until("the newest is told", || is_held_against(&balancer, "a", &format!("{SERVICE:?} is UNKNOWN"))).await;
    reporter.set_service_status(SERVICE, ServingStatus::Serving).await;
    picked(&balancer, &["a", "b"]).await;
    verdict(&stage.quick(GrpcCheck::default()), "a", Verdict::Healthy).await;
}

/// Registers it and waits until three checks have failed.
async fn fails(stage: &Stage, id: &str, address: impl std::fmt::Display, check: GrpcCheck) -> (Report, Registration) {
    let registration = stage.register(id, format!("grpc://{address}")).await;
    (verdict(&stage.quick(check), id, Verdict::Unhealthy).await, registration)
}

fn kind_and_why(report: &Report) -> (ErrorKind, &str) {
    (report.last().unwrap().failure().unwrap().kind(), report.why().unwrap())
}

#[tokio::test]
async fn who_does_not_know_the_question_is_told_apart() {
    let stage = Stage::set();
    let (_reporter, knows, _one) = serving().await;
    let (unknown, _a) = fails(&stage, "a", knows, GrpcCheck::of("no.such.Service")).await;
    let (kind, why) = kind_and_why(&unknown);
    assert!(kind == ErrorKind::Unavailable && why.contains("does not know service \"no.such.Service\""), "{why}");
    let (lacks, _two) = serve(Routes::new(Service::new(Named("lacks".to_owned())))).await;
    let (unimplemented, _b) = fails(&stage, "b", lacks, GrpcCheck::default()).await;
    let (kind, why) = kind_and_why(&unimplemented);
    assert!(kind == ErrorKind::Unsupported && why.contains("no health service (UNIMPLEMENTED)"), "{why}");
}

#[tokio::test]
async fn silence_refusal_and_other_protocols_are_failures() -> io::Result<()> {
    let stage = Stage::set();
    let (_reporter, address, _one) = serving().await;
    let proxy = Proxy::start(address).await?;
    let _a = stage.register("a", format!("grpc://{}", proxy.address())).await;
    let checker = stage.quick(GrpcCheck::default());
    verdict(&checker, "a", Verdict::Healthy).await;
    proxy.freeze().await?;
    let report = verdict(&checker, "a", Verdict::Unhealthy).await;
    assert_eq!(kind_and_why(&report).0, ErrorKind::DeadlineExceeded);
    proxy.cut().await;
    until("it is refused", || checker.report("a").unwrap().why().is_some_and(|why| why.contains("refused"))).await;
    proxy.pass().await?;
    verdict(&checker, "a", Verdict::Healthy).await;
    let web = HttpServer::start("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let (report, _b) = fails(&stage, "b", web.address, GrpcCheck::default()).await;
    assert_eq!(kind_and_why(&report).0, ErrorKind::Unavailable, "{report}");
    Ok(())
}
