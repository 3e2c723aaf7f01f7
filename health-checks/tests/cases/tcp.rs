//! Whether somebody listens.

use std::io;

use discovery_harness::Proxy;
use discovery_health::{TcpCheck, Verdict};

use crate::stage::{HttpServer, Stage, is_held_against, picked, until, verdict};

#[tokio::test]
async fn a_port_that_closes_is_unhealthy_until_it_opens_again() -> io::Result<()> {
    let server = HttpServer::start("").await;
    let (good, bad) = (Proxy::start(server.address).await?, Proxy::start(server.address).await?);
    let stage = Stage::set();
    let _good = stage.register("good", format!("tcp://{}", good.address())).await;
    let _bad = stage.register("bad", format!("grpcs://{}", bad.address())).await;
    let (balancer, checker) = (stage.balancer(), stage.quick(TcpCheck::default()));
    let _attachment = checker.attach(&balancer);
    verdict(&checker, "good", Verdict::Healthy).await;
    verdict(&checker, "bad", Verdict::Healthy).await;
    picked(&balancer, &["bad", "good"]).await;
    bad.cut().await;
    picked(&balancer, &["good"]).await;
    until("the reason is told", || is_held_against(&balancer, "bad", "refused")).await;
    bad.pass().await?;
    picked(&balancer, &["bad", "good"]).await;
    verdict(&checker, "bad", Verdict::Healthy).await;
    until("no connection is left over", || bad.open() <= 1).await;
    Ok(())
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_unhealthy() {
    let stage = Stage::set();
    let _a = stage.register("a", "tcp://nobody.invalid:1").await;
    let report = verdict(&stage.quick(TcpCheck::default()), "a", Verdict::Unhealthy).await;
    assert!(report.why().unwrap().contains("tcp://nobody.invalid:1"), "{report}");
}
