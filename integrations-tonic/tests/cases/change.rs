//! tonic's own balanced channel, fed from a watch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use discovery_core::State;
use discovery_core::conformance::stays;
use discovery_greeter::GreeterClient;
use discovery_harness::eventually;
use discovery_tonic::feed;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::stage::{Node, SOON, Stage, request, until};

/// A channel, and the task that feeds it.
fn channel(stage: &Stage) -> (Channel, JoinHandle<()>) {
    let (channel, changes) = Channel::balance_channel::<Arc<str>>(1024);
    let connect_timeout = Duration::from_secs(1);
    let feed =
        feed(stage.backend.watch("greeter"), changes, move |_, endpoint| Ok(endpoint.connect_timeout(connect_timeout)));
    (channel, tokio::spawn(feed))
}

/// Calls once; a deadline in the call itself would not count while nobody is there.
async fn hello(channel: &Channel, within: Duration) -> Result<String, Status> {
    let mut client = GreeterClient::new(channel.clone());
    let late = |_| Status::deadline_exceeded(format!("no answer within {within:?}"));
    Ok(timeout(within, client.say_hello(request("you"))).await.map_err(late)??.into_inner().server)
}

/// Calls until these servers, and nobody else, answer ten calls each of them.
async fn settle(channel: &Channel, names: &[&str]) {
    eventually(SOON, &format!("answers of {names:?}"), async || {
        let mut seen = BTreeSet::new();
        for _ in 0..10 * names.len() {
            seen.insert(hello(channel, SOON).await.map_err(|status| format!("{status:?}"))?);
        }
        if seen.iter().eq(names) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tonics_own_channel_follows_the_watch() {
    let stage = Stage::set();
    let (a, b, mut c) = (Node::start("a").await, Node::start("b").await, Node::start("c").await);
    let (_a, b_registered, c_registered) = (stage.join(&a).await, stage.join(&b).await, stage.join(&c).await);
    let (channel, feed) = channel(&stage);
    settle(&channel, &["a", "b", "c"]).await;

    c_registered.deregister().await.unwrap();
    settle(&channel, &["a", "b"]).await;
    c.kill().await;
    stays(Duration::from_millis(200), "calls of those that are there", async || hello(&channel, SOON).await.map(drop))
        .await;

    // The same id at another address, and then drained.
    let moved = Node::start("b2").await;
    let endpoint = format!("grpc://{}", moved.address()).parse().unwrap();
    b_registered.update(|record| record.endpoints([endpoint])).await.unwrap();
    settle(&channel, &["a", "b2"]).await;
    b_registered.update(|record| record.state(State::Draining)).await.unwrap();
    settle(&channel, &["a"]).await;

    // An outage removes nobody.
    stage.link.cut();
    let watch = stage.backend.watch("greeter");
    until("the set is stale", || watch.freshness().is_stale()).await;
    assert_eq!(hello(&channel, SOON).await.unwrap(), "a");

    // The feed ends with its channel.
    drop(channel);
    until("the feed has ended", || feed.is_finished()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tonics_own_channel_waits_while_nobody_is_there_and_the_feed_ends_with_the_backend() {
    let stage = Stage::set();
    let (channel, feed) = channel(&stage);
    let mut with_deadline = Request::new(request("you"));
    with_deadline.set_timeout(Duration::from_millis(10));
    let mut client = GreeterClient::new(channel.clone());
    assert!(timeout(Duration::from_millis(200), client.say_hello(with_deadline)).await.is_err(), "it has an end");

    let waiting = tokio::spawn({
        let channel = channel.clone();
        async move { hello(&channel, SOON).await }
    });
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    assert_eq!(waiting.await.unwrap().unwrap(), "a");

    stage.backend.close(SOON).await.unwrap();
    until("the feed has ended", || feed.is_finished()).await;
    assert_eq!(hello(&channel, SOON).await.unwrap(), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_be_called_is_left_out() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let _udp = stage.register("udp", "udp://127.0.0.1:1").await;
    let _bad = stage.register("bad", "grpc://127.0.0.1:1").await;
    let (channel, changes) = Channel::balance_channel::<Arc<str>>(1024);
    let feed = tokio::spawn(feed(stage.backend.watch("greeter"), changes, |instance, endpoint| match instance.id() {
        "bad" => endpoint.user_agent("\n"),
        _ => Ok(endpoint),
    }));
    settle(&channel, &["a"]).await;
    stays(Duration::from_millis(200), "calls of a", async || hello(&channel, SOON).await.map(drop)).await;
    feed.abort();
}
