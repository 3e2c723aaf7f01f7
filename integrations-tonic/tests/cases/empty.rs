//! Calls that find nobody.

use std::time::Duration;

use discovery_core::picker::RoundRobin;
use discovery_core::{Outcome, StalePolicy};
use discovery_tonic::{Channel, WhenEmpty};
use tokio::time::Instant;
use tonic::{Code, Request, Status};

use crate::stage::{Node, Stage, hello, member, request, until};
use discovery_greeter::GreeterClient;

async fn hello_within(channel: &Channel, deadline: Duration) -> Result<String, Status> {
    let mut call = Request::new(request("you"));
    call.set_timeout(deadline);
    Ok(GreeterClient::new(channel.clone()).say_hello(call).await?.into_inner().server)
}

/// An address that refuses connections.
fn dead() -> String {
    format!("grpc://{}", discovery_harness::refusing_address().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_to_nobody_waits_and_succeeds_when_somebody_comes() {
    let stage = Stage::set();
    let channel = stage.channel();
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let channel = channel.clone();
            tokio::spawn(async move { hello(&channel).await })
        })
        .collect();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    for call in waiting {
        assert_eq!(call.await.unwrap().unwrap(), "a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_to_nobody_ends_with_the_reason_at_its_deadline() {
    let stage = Stage::set();
    let channel = stage.channel();
    until("there is a set", || channel.balancer().freshness().is_live()).await;
    let deadline = Duration::from_millis(300);
    let started = Instant::now();
    let status = hello_within(&channel, deadline).await.unwrap_err();
    let late = started.elapsed().checked_sub(deadline).unwrap();
    assert!(late <= Duration::from_millis(50), "{late:?} late");
    assert_eq!(status.code(), Code::Unavailable);
    let text = status.message();
    assert!(
        text.contains("\"greeter\"") && text.contains("no instance is registered") && text.contains("300"),
        "{text}"
    );

    let started = Instant::now();
    let status = hello(&channel).await.unwrap_err();
    assert_eq!((status.code(), started.elapsed().as_secs()), (Code::Unavailable, 10));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_set_names_the_cause_at_the_store() {
    let stage = Stage::set();
    stage.link.cut();
    let status = hello_within(&stage.channel(), Duration::from_secs(3)).await.unwrap_err();
    let text = status.message();
    assert!(text.contains("no set was read") && text.contains("the link is cut"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_to_the_unreachable_names_the_last_dial() {
    let stage = Stage::set();
    let dead = dead();
    let _a = stage.register("a", &dead).await;
    let status = hello_within(&stage.channel(), Duration::from_secs(1)).await.unwrap_err();
    let text = status.message();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(text.contains("1 known, none connected") && text.contains("efused"), "{text}");
    assert!(text.contains(dead.trim_start_matches("grpc://")), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_fast_does_not_wait_for_somebody_to_come_but_for_the_first_dial() {
    let stage = Stage::set();
    let build = || {
        let builder = Channel::builder(stage.backend.watch("greeter"), RoundRobin::new());
        builder.with_when_empty(WhenEmpty::FailFast).build()
    };
    let channel = build();
    let status = hello(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");

    let dead = stage.register("dead", &dead()).await;
    let known = |channel: &Channel| channel.balancer().members().len() == 1;
    let channel = build();
    until("the dead instance is known", || known(&channel)).await;
    let status = hello(&channel).await.unwrap_err();
    assert!(status.message().contains("none connected") && !status.message().contains("waited"), "{status}");
    dead.deregister().await.unwrap();

    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let channel = build();
    until("a is known", || known(&channel)).await;
    assert_eq!(hello(&channel).await.unwrap(), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_does_not_come_ends_the_call_at_its_deadline() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let channel = stage.channel();
    assert_eq!(hello(&channel).await.unwrap(), "a");
    // Often, since the server keeps the deadline as well and the two are close.
    for _ in 0..20 {
        let mut call = Request::new(request("wait"));
        call.set_timeout(Duration::from_millis(20));
        let status = GreeterClient::new(channel.clone()).say_hello(call).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    assert_eq!(member(&channel, "a").count(Outcome::Failure), 20);
    assert_eq!(hello(&channel).await.unwrap(), "a");
    assert_eq!(a.accepted(), 1, "the connection did not survive");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w04_a_stale_set_is_called_or_refused_as_the_caller_says() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let serve = stage.channel();
    let builder = Channel::builder(stage.backend.watch("greeter"), RoundRobin::new());
    let refuse = builder.with_stale(StalePolicy::RefuseAfter(Duration::ZERO)).build();
    assert_eq!((hello(&serve).await.unwrap(), hello(&refuse).await.unwrap()), ("a".to_owned(), "a".to_owned()));
    stage.link.cut();
    until("the set is stale", || serve.balancer().freshness().is_stale() && refuse.balancer().freshness().is_stale())
        .await;
    assert_eq!(hello(&serve).await.unwrap(), "a");
    let status = hello_within(&refuse, Duration::from_millis(50)).await.unwrap_err();
    assert!(status.message().contains("older than allowed"), "{status}");
}
