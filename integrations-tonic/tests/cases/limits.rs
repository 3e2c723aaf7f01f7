//! How many streams a server allows: calls that exceed it wait, and go wherever there is room first.

use std::time::{Duration, Instant};

use discovery_core::Outcome;
use discovery_greeter::{GreeterClient, HelloReply, HelloRequest};
use discovery_tonic::{Channel, WhenEmpty};
use tonic::transport::Server;
use tonic::{Code, Request, Status, Streaming};

use crate::stage::raw::{MAX_STREAMS, NO_ERROR, Raw, Wire, scene, scene_with};
use crate::stage::{
    Greeting, Node, Stage, begin, connected, end, hello, member, pending, request, settle, stays, until, within,
};

/// A server that allows one stream for each connection.
async fn narrow() -> Node {
    Node::start_with("a", "127.0.0.1:0", Greeting(Server::builder().max_concurrent_streams(1))).await
}

/// Takes a stream, for as long as the answer is kept.
async fn occupy(channel: &Channel) -> Streaming<HelloReply> {
    let wait = HelloRequest { name: "wait".to_owned(), count: 1 };
    GreeterClient::new(channel.clone()).count_hellos(wait).await.unwrap().into_inner()
}

/// The status of a call that nobody took, which is nobody's failure.
fn assert_untaken(channel: &Channel, status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    let text = status.message();
    assert!(text.contains("\"greeter\"") && text.contains("1 known"), "{text}");
    assert_eq!((member(channel, "raw").count(Outcome::Failure), pending(channel)), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_zero_that_rises_wakes_what_waits() {
    let (_stage, _raw, channel, mut wire) = scene(&[(MAX_STREAMS, 0)]).await;
    let call = begin(&channel).await;
    wire.settings(&[(MAX_STREAMS, 100)]).await;
    tokio::spawn(wire.serve());
    end(call).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_one_that_rises_wakes_what_waits() {
    let (_stage, _raw, channel, mut wire) = scene(&[(MAX_STREAMS, 1)]).await;
    let first = begin(&channel).await;
    let held = wire.request().await;
    let second = begin(&channel).await;
    wire.settings(&[(MAX_STREAMS, 100)]).await;
    let id = wire.request().await;
    wire.answer(id).await;
    end(second).await.unwrap();
    wire.answer(held).await;
    end(first).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goodbye_while_all_streams_are_taken_leads_to_a_new_connection() {
    let (_stage, raw, channel, mut wire) = scene(&[(MAX_STREAMS, 1)]).await;
    let first = begin(&channel).await;
    let held = wire.request().await;
    wire.goodbye(held, NO_ERROR, "").await;
    wire.heard().await;
    let second = begin(&channel).await;
    tokio::spawn(within("a new dial", raw.accept(&[])).await.serve());
    end(second).await.unwrap();
    wire.answer(held).await;
    end(first).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goodbye_sends_what_waits_for_a_stream_to_another_instance() {
    let (stage, _raw, channel, mut wire) = scene(&[(MAX_STREAMS, 1)]).await;
    let first = begin(&channel).await;
    let held = wire.request().await;
    let second = begin(&channel).await;
    let node = Node::start("b").await;
    let _node = stage.join(&node).await;
    connected(&channel, 2).await;
    wire.goodbye(held, NO_ERROR, "").await;
    wire.heard().await;
    assert_eq!(end(second).await.unwrap(), "b");
    wire.answer(held).await;
    end(first).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_told_goodbye_is_replaced_before_a_call_needs_it() {
    for is_busy in [false, true] {
        let (_stage, raw, channel, mut wire) = scene(&[]).await;
        let mut last = 0;
        if is_busy {
            begin(&channel).await;
            last = wire.request().await;
        }
        wire.goodbye(last, NO_ERROR, "").await;
        tokio::spawn(wire.drain());
        within("a new dial", raw.accept(&[])).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_stream_leaves_an_instance_that_is_deregistered() {
    let (stage, raw) = (Stage::set(), Raw::bind().await);
    let held = stage.register("raw", &raw.url()).await;
    let channel = stage.channel();
    let mut wire = raw.accept(&[(MAX_STREAMS, 1)]).await;
    connected(&channel, 1).await;
    let first = begin(&channel).await;
    let id = wire.request().await;
    let second = begin(&channel).await;
    let node = Node::start("b").await;
    let _node = stage.join(&node).await;
    connected(&channel, 2).await;
    held.deregister().await.unwrap();
    assert_eq!(end(second).await.unwrap(), "b");
    wire.answer(id).await;
    end(first).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_connections_a_call_takes_the_one_that_has_room() {
    let stage = Stage::set();
    let node = narrow().await;
    let _node = stage.join(&node).await;
    let channel = stage.channel_builder().with_connections(2).build();
    until("both are accepted", || node.accepted() == 2).await;
    settle(&channel, &["a"]).await;
    let _open = occupy(&channel).await;
    for _ in 0..4 {
        assert_eq!(within("the idle connection", hello(&channel)).await.unwrap(), "a");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_instances_a_call_takes_the_one_that_has_room() {
    let stage = Stage::set();
    let (a, b) = (narrow().await, Node::start("b").await);
    let _a = stage.join(&a).await;
    let channel = stage.channel();
    settle(&channel, &["a"]).await;
    let _open = occupy(&channel).await;
    let _b = stage.join(&b).await;
    connected(&channel, 2).await;
    for _ in 0..4 {
        assert_eq!(within("the idle instance", hello(&channel)).await.unwrap(), "b");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_a_deadline_waits_for_a_stream_as_long_as_for_an_instance() {
    let patience = Duration::from_millis(500);
    let wait = WhenEmpty::Wait(patience);
    let (_stage, _raw, channel, _wire) = scene_with(&[(MAX_STREAMS, 0)], |builder| builder.with_when_empty(wait)).await;
    let begun = Instant::now();
    let status = within("the call's end", hello(&channel)).await.unwrap_err();
    // Long before the silent connection would be given up.
    let waited = begun.elapsed();
    assert!((patience..10 * patience).contains(&waited), "{waited:?}");
    assert_untaken(&channel, &status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_a_stream_up_to_its_deadline() {
    let (_stage, _raw, channel, _wire) = scene(&[(MAX_STREAMS, 0)]).await;
    let mut call = Request::new(request("you"));
    call.set_timeout(Duration::from_millis(300));
    let status = within("the call's end", GreeterClient::new(channel.clone()).say_hello(call)).await.unwrap_err();
    assert_untaken(&channel, &status);
}

/// Breaks the connection that has one of these calls, and expects all others at another instance.
async fn assert_only_one_is_lost(
    (stage, raw, channel, wire): (Stage, Raw, Channel, Wire),
    calls: Vec<tokio::task::JoinHandle<Result<String, Status>>>,
) {
    let node = Node::start("b").await;
    let _node = stage.join(&node).await;
    connected(&channel, 2).await;
    drop((wire, raw));
    let mut lost = Vec::new();
    for call in calls {
        match end(call).await {
            Ok(server) => assert_eq!(server, "b"),
            Err(status) => lost.push(status),
        }
    }
    assert!(lost.len() == 1 && lost[0].code() == Code::Unavailable, "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lowered_limit_keeps_from_being_sent_is_not_lost_with_the_connection() {
    let (stage, raw, channel, mut wire) = scene(&[(MAX_STREAMS, 100)]).await;
    wire.settings(&[(MAX_STREAMS, 1)]).await;
    wire.heard().await;
    let mut calls = vec![begin(&channel).await];
    wire.request().await;
    for _ in 0..5 {
        calls.push(begin(&channel).await);
    }
    wire.heard().await;
    assert_only_one_is_lost((stage, raw, channel, wire), calls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_a_greeting_is_none() {
    let (stage, raw) = (Stage::set(), Raw::bind().await);
    let _raw = stage.register("raw", &raw.url()).await;
    let builder = stage.channel_builder().with_when_empty(WhenEmpty::FailFast);
    let channel = builder.with_connect_timeout(Duration::from_millis(300)).build();
    until("it is known", || channel.balancer().members().len() == 1).await;
    let call = begin(&channel).await;
    let mut wire = raw.accept_unspoken().await;
    wire.write(&[0, 0]).await;
    let status = end(call).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("no connection within"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_a_greeting_in_two_segments_counts() {
    let (stage, raw) = (Stage::set(), Raw::bind().await);
    let _raw = stage.register("raw", &raw.url()).await;
    let channel = stage.channel();
    let mut wire = raw.accept_unspoken().await;
    // SETTINGS with a limit of one stream: the head of the frame, and what it is about.
    wire.write(&[0, 0, 6, 4, 0, 0, 0, 0, 0]).await;
    // Nothing tells when the client has read the first segment. If it has not, it reads both as one, and the test still passes.
    stays(Duration::from_millis(50), "a part of a greeting is none", || channel.connected() == 0).await;
    wire.write(&[0, 3, 0, 0, 0, 1]).await;
    connected(&channel, 1).await;
    let mut calls = Vec::new();
    for _ in 0..6 {
        calls.push(begin(&channel).await);
    }
    wire.request().await;
    wire.heard().await;
    assert_only_one_is_lost((stage, raw, channel, wire), calls).await;
}
