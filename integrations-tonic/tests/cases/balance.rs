//! Who gets the calls.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream;
use tonic::transport::Server;
use tonic::{Code, Request};

use crate::stage::{Greeting, Node, SOON, Stage, hello, member, request, settle, spread, until};
use discovery_greeter::GreeterClient;
use discovery_greeter::HelloRequest;

fn shares(shares: &[(&str, usize)]) -> BTreeMap<String, usize> {
    shares.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p05_three_servers_get_equal_shares_and_a_killed_one_costs_no_call() {
    let stage = Stage::set();
    let (a, mut b, c) = (Node::start("a").await, Node::start("b").await, Node::start("c").await);
    let _registered = [stage.join(&a).await, stage.join(&b).await, stage.join(&c).await];
    let channel = stage.channel();
    settle(&channel, &["a", "b", "c"]).await;
    assert_eq!(spread(&channel, 300).await, shares(&[("a", 100), ("b", 100), ("c", 100)]));

    b.kill().await;
    until("the loss is noticed", || channel.connected() == 2).await;
    let counts = spread(&channel, 1_000).await;
    assert_eq!(counts.values().sum::<usize>(), 1_000);
    // Until the balancer has built its next selection, b's neighbour stands in for it.
    assert!(!counts.contains_key("b") && counts["a"].abs_diff(counts["c"]) <= 100, "{counts:?}");

    b.restart().await;
    settle(&channel, &["a", "b", "c"]).await;
    assert_eq!(spread(&channel, 300).await, shares(&[("a", 100), ("b", 100), ("c", 100)]));
    assert_eq!((a.accepted(), b.accepted(), c.accepted()), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_not_sent_moves_with_its_body_to_another_instance() {
    let stage = Stage::set();
    let one_stream = Server::builder().max_concurrent_streams(1);
    let mut a = Node::start_with("a", "127.0.0.1:0", Greeting(one_stream)).await;
    let _a = stage.join(&a).await;
    let channel = stage.channel();
    settle(&channel, &["a"]).await;

    // A stream that does not end holds the only one that a allows, so that the calls stay in the connection's queue.
    let mut client = GreeterClient::new(channel.clone());
    let mut held = client.count_hellos(HelloRequest { name: "wait".to_owned(), count: 1 }).await.unwrap().into_inner();
    held.message().await.unwrap().unwrap();
    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut client = client.clone();
        let names = stream::iter(["x", "and", "more"].map(request));
        calls.push(tokio::spawn(async move { client.greet_all(names).await }));
    }
    until("the calls are with a", || member(&channel, "a").pending() == 4).await;
    let b = Node::start("b").await;
    let _b = stage.join(&b).await;
    until("b is connected", || channel.connected() == 2).await;
    a.kill().await;
    let mut moved = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(reply) => {
                let reply = reply.into_inner();
                assert_eq!((&*reply.server, &*reply.message), ("b", "x,and,more"));
                moved += 1;
            }
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
        }
    }
    // The head of the queue may be lost with the connection, which does not say whether it was sent.
    assert!(moved >= 2, "{moved} of 3 calls moved");
    assert_eq!(held.message().await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_never_greets_gets_no_call_while_another_is_connected() {
    let stage = Stage::set();
    // The kernel accepts its connections, and nobody answers them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = discovery_harness::refusing_address().unwrap();
    let a = Node::start("a").await;
    let _registered = [
        stage.register("silent", &format!("grpc://{}", silent.local_addr().unwrap())).await,
        stage.register("refusing", &format!("grpc://{refusing}")).await,
        stage.join(&a).await,
    ];
    let channel = stage.channel();
    assert_eq!(spread(&channel, 100).await, shares(&[("a", 100)]));
    assert!(!member(&channel, "silent").is_available());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_for_a_dial_in_progress_if_nobody_else_is_there() {
    let stage = Stage::set();
    let mut a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let channel = stage.channel();
    settle(&channel, &["a"]).await;
    a.kill().await;
    until("the loss is noticed", || channel.connected() == 0).await;
    let waiting = tokio::spawn({
        let channel = channel.clone();
        async move { hello(&channel).await }
    });
    a.restart().await;
    assert_eq!(waiting.await.unwrap().unwrap(), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f08_ipv6_addresses_are_called_as_they_are_registered() {
    let stage = Stage::set();
    let a = Node::start_with("a", "[::1]:0", Greeting::default()).await;
    let _a = stage.register("a", &format!("grpc://[::1]:{}", a.address().port())).await;
    assert_eq!(hello(&stage.channel()).await.unwrap(), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_needs_tls_is_refused_by_name() {
    let stage = Stage::set();
    let _a = stage.register("a", "grpcs://127.0.0.1:1").await;
    let channel = stage.channel();
    until("a is known", || channel.balancer().members().len() == 1).await;
    let mut call = Request::new(request("you"));
    call.set_timeout(Duration::from_secs(1));
    let status = GreeterClient::new(channel).say_hello(call).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("grpcs://127.0.0.1:1: it wants TLS; give the channel certificates"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_clients_take_it_with_an_interceptor_and_servers_see_its_user_agent() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let watch = stage.backend.watch("greeter");
    let builder = discovery_tonic::Channel::builder(watch, discovery_core::picker::PowerOfTwo);
    let channel = builder.with_user_agent("orders/1.2").unwrap().build();
    let mut client = GreeterClient::with_interceptor(channel, |request: Request<()>| Ok(request));
    let reply = tokio::time::timeout(SOON, client.say_hello(request("you"))).await.unwrap().unwrap().into_inner();
    let expected = format!("orders/1.2 discovery-tonic/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!((&*reply.server, &*reply.message), ("a", &*expected));
}
