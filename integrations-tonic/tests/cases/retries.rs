//! Calls that are made again.

use std::time::Duration;

use discovery_core::Outcome;
use discovery_core::attempts::{RetryBudget, RetryPolicy};
use discovery_core::picker::RoundRobin;
use discovery_tonic::{Channel, Retries};
use futures_util::stream;
use tonic::{Code, Request};

use crate::stage::{Node, Stage, member, request, settle, until};
use discovery_greeter::GreeterClient;

fn policy() -> RetryPolicy {
    let soon = Duration::from_millis(1);
    RetryPolicy::default().with_attempts(3).with_backoff(soon, soon, 1.0)
}

/// A budget that no test here uses up.
fn generous() -> Retries {
    Retries::new(policy()).with_budget(RetryBudget::new(1_000, 1.0))
}

fn channel(stage: &Stage, retries: Retries) -> Channel {
    Channel::builder(stage.backend.watch("greeter"), RoundRobin::new()).with_retries(retries).build()
}

/// Two servers, and a channel over both.
async fn pair(retries: Retries) -> (Stage, [Node; 2], Channel) {
    let stage = Stage::set();
    let nodes = [Node::start("a").await, Node::start("b").await];
    for node in &nodes {
        std::mem::forget(stage.join(node).await);
    }
    let channel = channel(&stage, retries);
    settle(&channel, &["a", "b"]).await;
    (stage, nodes, channel)
}

fn failures(channel: &Channel, id: &str) -> u64 {
    member(channel, id).count(Outcome::Failure)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_failed_is_made_again_at_another_instance() {
    let (_stage, _nodes, channel) = pair(generous()).await;
    let mut client = GreeterClient::new(channel.clone());
    let mut again = 0;
    for _ in 0..40 {
        let reply = client.say_hello(request("at:a:fail:14")).await.unwrap().into_inner();
        assert_eq!(reply.server, "b");
        again += u64::from(reply.message == "1");
    }
    // Each that began at a was made again once. The retries take turns as well, so it may be all of them.
    assert!(again >= 20);
    assert_eq!((failures(&channel, "a"), failures(&channel, "b")), (again, 0));
    assert_eq!((member(&channel, "a").pending(), member(&channel, "b").pending()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_all_is_retried_as_the_budget_allows() {
    let (_stage, _nodes, channel) = pair(Retries::new(policy())).await;
    let mut client = GreeterClient::new(channel.clone());
    for _ in 0..200 {
        assert_eq!(client.say_hello(request("fail:14")).await.unwrap_err().code(), Code::Unavailable);
    }
    // Ten tokens: after four retries half of them are gone.
    let attempts = failures(&channel, "a") + failures(&channel, "b");
    assert!((201..=204).contains(&attempts), "{attempts}");
    // Successes fill it again.
    for _ in 0..100 {
        client.say_hello(request("you")).await.unwrap();
    }
    client.say_hello(request("at:a:fail:14")).await.unwrap();
    client.say_hello(request("at:a:fail:14")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_may_be_called_twice_is_and_only_for_its_codes() {
    let retries = generous().for_methods(|path| path.ends_with("/GreetAll")).with_codes([Code::Internal]);
    let (_stage, _nodes, channel) = pair(retries).await;
    let mut client = GreeterClient::new(channel.clone());
    for _ in 0..10 {
        client.greet_all(stream::iter([request("at:a:fail:13")])).await.unwrap();
    }
    assert!(failures(&channel, "a") >= 5);
    let mut failed = [0; 2];
    for _ in 0..10 {
        failed[0] += u32::from(client.greet_all(stream::iter([request("at:a:fail:14")])).await.is_err());
        failed[1] += u32::from(client.say_hello(request("at:b:fail:13")).await.is_err());
    }
    // Round robin takes turns, so one server has all of one kind; either half of them or all fail.
    assert!(failed.iter().sum::<u32>() >= 10, "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_request_is_sent_again_whole_if_it_was_small_enough() {
    let (_stage, _nodes, channel) = pair(generous().with_buffer(100)).await;
    let mut client = GreeterClient::new(channel.clone());
    for _ in 0..4 {
        let names = stream::iter(["x", "y", "at:a:fail:14"].map(request));
        let reply = client.greet_all(names).await.unwrap().into_inner();
        assert_eq!((reply.server.as_str(), reply.message.as_str()), ("b", "x,y,at:a:fail:14"));
    }
    let before = failures(&channel, "a");
    assert!(before >= 2);
    // One that is too large is sent once.
    let large = "z".repeat(200);
    let mut failed = 0;
    for _ in 0..4 {
        let names = stream::iter([request(&large), request("at:a:fail:14")]);
        failed += u64::from(client.greet_all(names).await.is_err());
    }
    assert_eq!((failed, failures(&channel, "a")), (2, before + 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_to_a_server_that_is_killed_is_answered_by_another() {
    let (_stage, mut nodes, channel) = pair(generous()).await;
    nodes[1].open_gate();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let mut client = GreeterClient::new(channel.clone());
            tokio::spawn(async move { client.say_hello(request("wait")).await })
        })
        .collect();
    until("five calls wait at a", || member(&channel, "a").pending() == 5).await;
    nodes[0].kill().await;
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().into_inner().server, "b");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_retry_outlives_the_deadline() {
    let late = Duration::from_secs(60);
    let slow = Retries::new(RetryPolicy::default().with_backoff(late, late, 1.0));
    let (_stage, _nodes, channel) = pair(slow).await;
    let mut client = GreeterClient::new(channel.clone());
    let mut call = Request::new(request("fail:14"));
    // No wait that is drawn from a minute is shorter than this in practice; if one were, the call would fail the same way.
    call.set_timeout(Duration::from_millis(1_000));
    let begun = std::time::Instant::now();
    assert_eq!(client.say_hello(call).await.unwrap_err().code(), Code::Unavailable);
    assert!(begun.elapsed() < Duration::from_millis(1_200));
}
