//! Pings: how a connection shows that it lives, and how often it is asked.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use discovery_greeter::{GreeterClient, HelloRequest};
use discovery_harness::Proxy;
use futures_util::StreamExt;
use tonic::Code;

use crate::stage::raw::{ENHANCE_YOUR_CALM, scene_with};
use crate::stage::{Node, Stage, hello, member, request, settle, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_a_connection_that_is_open_but_silent_is_given_up_and_dialled_again() {
    let stage = Stage::set();
    let node = Node::start("a").await;
    let proxy = Proxy::start(node.address()).await.unwrap();
    let _node = stage.register("a", &format!("grpc://{}", proxy.address())).await;
    let (interval, limit) = (Duration::from_millis(300), Duration::from_secs(2));
    let channel = stage.channel_builder().with_keepalive(interval, limit).build();
    settle(&channel, &["a"]).await;
    // Nobody calls, and pings keep the connection: three answers, of 17 bytes each.
    let before = proxy.bytes_down();
    until("three pings are answered", || proxy.bytes_down() >= before + 3 * 17).await;
    assert_eq!((node.accepted(), channel.connected()), (1, 1));

    let mut client = GreeterClient::new(channel.clone());
    let waiting = tokio::spawn(async move { client.say_hello(request("wait")).await });
    until("the call is with a", || member(&channel, "a").pending() == 1).await;
    proxy.freeze().await.unwrap();
    let status = waiting.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    until("nobody is connected", || channel.connected() == 0).await;
    proxy.pass().await.unwrap();
    assert_eq!(hello(&channel).await.unwrap(), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w12_a_server_that_speaks_is_not_given_up_for_a_ping_without_an_answer() {
    const MESSAGES: usize = 12;
    let (interval, limit, pace) = (Duration::from_millis(50), Duration::from_secs(1), Duration::from_millis(150));
    let (_stage, _raw, channel, mut wire) = scene_with(&[], |builder| builder.with_keepalive(interval, limit)).await;
    wire.answers_pings = false;
    let pings = wire.pings.clone();
    tokio::spawn(async move {
        let id = wire.request().await;
        wire.head(id).await;
        let mut pace = tokio::time::interval(pace);
        for _ in 0..MESSAGES {
            pace.tick().await;
            wire.message(id).await;
        }
        wire.trailers(id).await;
        wire.drain().await;
    });
    let call = HelloRequest { name: "you".to_owned(), count: 1 };
    let answer = GreeterClient::new(channel).count_hellos(call).await.unwrap().into_inner();
    let answers: Vec<_> = within("the stream's end", answer.collect()).await;
    assert_eq!(answers.iter().filter(|it| it.is_ok()).count(), MESSAGES, "{:?}", answers.last());
    until("there was a ping", || pings.load(Ordering::SeqCst) > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interval_or_a_limit_without_an_end_does_no_harm() {
    let soon = Duration::from_millis(1);
    for (interval, limit) in [(Duration::MAX, Duration::MAX), (Duration::MAX, soon), (soon, Duration::MAX)] {
        let stage = Stage::set();
        let node = Node::start("a").await;
        let _node = stage.join(&node).await;
        let channel = stage.channel_builder().with_keepalive(interval, limit).build();
        for _ in 0..20 {
            assert_eq!(within("the call's end", hello(&channel)).await.unwrap(), "a");
        }
        assert_eq!(node.accepted(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interval_of_zero_sends_no_pings() {
    let (interval, limit) = (Duration::ZERO, Duration::from_secs(1));
    let (_stage, _raw, channel, wire) = scene_with(&[], |builder| builder.with_keepalive(interval, limit)).await;
    let pings = wire.pings.clone();
    tokio::spawn(wire.serve());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        within("the call's end", hello(&channel)).await.unwrap();
    }
    assert_eq!(pings.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_says_too_many_pings_is_pinged_half_as_often() {
    let (interval, limit) = (Duration::from_millis(100), Duration::from_secs(20));
    let (_stage, raw, _channel, mut wire) = scene_with(&[], |builder| builder.with_keepalive(interval, limit)).await;
    let mut lives = Vec::new();
    // As gRPC's servers do: a third ping in a row, without data between them, is one too many.
    for _ in 0..3 {
        let begun = Instant::now();
        for _ in 0..3 {
            assert!(within("a ping", wire.pinged()).await, "the client closed");
        }
        lives.push(begun.elapsed());
        wire.goodbye(0, ENHANCE_YOUR_CALM, "too_many_pings").await;
        tokio::spawn(wire.drain());
        wire = within("a new dial", raw.accept(&[])).await;
    }
    // Three intervals each: of 100 ms, 200 ms and 400 ms.
    assert!(lives[1] >= 5 * interval && lives[2] >= 10 * interval, "{lives:?}");
}
