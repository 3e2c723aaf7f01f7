//! Calls to a service that nobody serves: how late they end, and how soon they succeed once somebody comes.

use std::time::{Duration, Instant};

use discovery_core::picker::RoundRobin;
use discovery_greeter::{GreeterClient, Named};
use discovery_tonic::{Channel, ServiceServer, WhenEmpty};
use tonic::Code;

use super::idle::hello;
use super::{SOON, Scene};
use crate::Result;

const SERVICE: &str = "nobody";
const CALLS: usize = 20;
const DEADLINE: Duration = Duration::from_millis(500);

pub(super) async fn run(scene: &Scene) -> Result<()> {
    let channel = Channel::new(scene.backend.watch(SERVICE), RoundRobin::new());
    let (mut latest, mut without_reason) = (Duration::ZERO, 0);
    for _ in 0..CALLS {
        let begun = Instant::now();
        let answer = hello(GreeterClient::new(channel.clone()), DEADLINE).await;
        latest = latest.max(begun.elapsed().saturating_sub(DEADLINE));
        let has_reason = |status: tonic::Status| {
            status.code() == Code::Unavailable && status.message().contains("no instance is registered")
        };
        if !answer.is_err_and(has_reason) {
            without_reason += 1;
        }
    }
    scene.print("empty_latest", format!("{:.1}", latest.as_secs_f64() * 1e3), "ms after the deadline");
    scene.print("empty_without_reason", without_reason, &format!("calls of {CALLS}"));

    let waiting = tokio::spawn(hello(GreeterClient::new(channel.clone()), SOON));
    let server = ServiceServer::bind("127.0.0.1:0").await?.with_grace(Duration::from_millis(200));
    let server = server.start(scene.backend.clone(), SERVICE, Named::routes("somebody")).await?;
    let registered = Instant::now();
    waiting.await??;
    scene.print("empty_served", format!("{:.1}", registered.elapsed().as_secs_f64() * 1e3), "ms after somebody came");
    server.shutdown().await?;

    let watch = scene.backend.watch(SERVICE);
    let fail_fast = Channel::builder(watch, RoundRobin::new()).with_when_empty(WhenEmpty::FailFast).build();
    // The first one waits for the first set.
    let _first = hello(GreeterClient::new(fail_fast.clone()), SOON).await;
    let begun = Instant::now();
    let failed = hello(GreeterClient::new(fail_fast.clone()), SOON).await.is_err();
    scene.print("empty_fail_fast", format!("{:.1}", begun.elapsed().as_secs_f64() * 1e3), "ms");
    if failed { Ok(()) } else { Err("a call to nobody succeeded".into()) }
}
