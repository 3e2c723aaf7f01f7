//! What HTTP/2 does to single calls: refusals, limits, windows, and connections that take no more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use discovery_core::Outcome;
use discovery_greeter::{GreeterClient, HelloRequest};
use futures_util::{StreamExt, future, stream};
use tonic::Code;
use tonic::transport::Server;

use crate::stage::raw::{Raw, WINDOW, scene};
use crate::stage::{Greeting, Node, Stage, hello, member, pending, request, settle, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_refused_unseen_goes_to_another_instance() {
    let stage = Stage::set();
    let (refuser, node) = (Raw::bind().await, Node::start("a").await);
    let _refuser = stage.register("refuser", &refuser.url()).await;
    let refused = refuser.refuse();
    let _node = stage.join(&node).await;
    let channel = stage.channel();
    until("both are connected", || channel.connected() == 2 && channel.sharing() == 2).await;
    for _ in 0..20 {
        assert_eq!(hello(&channel).await.unwrap(), "a");
    }
    // Until it is ejected, round robin asks it for every call: the second attempt takes the other one's turn.
    let refused = refused.load(Ordering::SeqCst);
    assert!(refused >= 5, "{refused} refused");
    assert_eq!(member(&channel, "refuser").count(Outcome::Failure), refused as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_refused_twice_fails() {
    let stage = Stage::set();
    let refuser = Raw::bind().await;
    let _refuser = stage.register("refuser", &refuser.url()).await;
    let refused = refuser.refuse();
    let status = hello(&stage.channel()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("refused"), "{status:?}");
    assert_eq!(refused.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_takes_no_more_is_replaced_while_its_calls_go_on() {
    let stage = Stage::set();
    let age = Duration::from_millis(300);
    let node = Node::start_with("a", "127.0.0.1:0", Greeting(Server::builder().max_connection_age(age))).await;
    let _node = stage.join(&node).await;
    let channel = stage.channel();
    settle(&channel, &["a"]).await;
    let mut client = GreeterClient::new(channel.clone());
    let wait = HelloRequest { name: "wait".to_owned(), count: 1 };
    let mut open = client.count_hellos(wait).await.unwrap().into_inner();
    assert_eq!(open.message().await.unwrap().unwrap().message, "0");
    // Whatever the moment at which the server says goodbye, no call fails.
    while node.accepted() < 3 {
        assert_eq!(hello(&channel).await.unwrap(), "a");
    }
    node.open_gate();
    assert!(open.message().await.unwrap().is_none(), "the first connection ended before its stream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exceeds_the_servers_streams_waits_and_moves_if_the_server_goes() {
    let stage = Stage::set();
    let limited = Server::builder().max_concurrent_streams(2);
    let (mut a, b) = (Node::start_with("a", "127.0.0.1:0", Greeting(limited)).await, Node::start("b").await);
    let _a = stage.join(&a).await;
    let channel = stage.channel();
    settle(&channel, &["a"]).await;
    let call = |name: &'static str| {
        let mut client = GreeterClient::new(channel.clone());
        tokio::spawn(async move { client.say_hello(request(name)).await })
    };
    let sent = [call("wait"), call("wait")];
    until("two are with a", || member(&channel, "a").pending() == 2).await;
    let waiting: Vec<_> = (0..6).map(|_| call("you")).collect();
    until("six more wait for a", || member(&channel, "a").pending() == 8).await;
    let _b = stage.join(&b).await;
    until("b is connected", || channel.connected() == 2).await;
    a.kill().await;
    for call in sent {
        assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Unavailable, "it was sent, and may have been seen");
    }
    for call in waiting {
        assert_eq!(call.await.unwrap().unwrap().into_inner().server, "b");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_stream_gets_one_when_another_ends() {
    let stage = Stage::set();
    let node = Node::start_with("a", "127.0.0.1:0", Greeting(Server::builder().max_concurrent_streams(2))).await;
    let _node = stage.join(&node).await;
    let channel = stage.channel();
    let calls = (0..500).map(|_| hello(&channel));
    let answers = future::join_all(calls).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|name| name == "a")), "{answers:?}");
    assert_eq!(node.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_answers_larger_than_the_windows_arrive_whole() {
    let stage = Stage::set();
    let node = Node::start("a").await;
    let _node = stage.join(&node).await;
    let mut client = GreeterClient::new(stage.channel()).max_decoding_message_size(16 << 20);
    // Twelve mebibytes: in messages of three there, and as one back.
    let name = |n: usize| format!("{n}{}", "x".repeat(3 << 20));
    let reply = client.greet_all(stream::iter((0..4).map(move |n| request(&name(n))))).await.unwrap().into_inner();
    assert!(reply.message == (0..4).map(name).collect::<Vec<_>>().join(","), "{} bytes", reply.message.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_one_byte_slow_a_request_but_do_not_stop_it() {
    let (_stage, _raw, channel, mut wire) = scene(&[(WINDOW, 0)]).await;
    tokio::spawn(async move {
        let id = wire.opened().await;
        let mut is_last = false;
        while !is_last {
            wire.window(id, 1).await;
            is_last = wire.piece(id).await.1;
        }
        wire.answer(id).await;
        wire.drain().await;
    });
    let requests = stream::iter((0..20).map(|n| request(&"x".repeat(n * 10))));
    within("the call's end", GreeterClient::new(channel.clone()).greet_all(requests)).await.unwrap();
    until("nothing is in flight", || pending(&channel) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_still_sent_ends_with_the_answer() {
    let stage = Stage::set();
    let node = Node::start("a").await;
    let _node = stage.join(&node).await;
    let channel = stage.channel();
    let (alive, ended) = tokio::sync::oneshot::channel::<()>();
    // It never ends by itself, and tells when it is dropped.
    let endless = stream::once(async { request("you") }).chain(stream::unfold(alive, |alive| async move {
        std::future::pending::<()>().await;
        Some((request("you"), alive))
    }));
    let mut answer = GreeterClient::new(channel.clone()).greet_each(endless).await.unwrap().into_inner();
    assert_eq!(answer.message().await.unwrap().unwrap().message, "you");
    drop(answer);
    // An error says that the other end is gone, as it should be.
    assert!(ended.await.is_err());
    until("nothing is in flight", || member(&channel, "a").pending() == 0).await;
    assert_eq!(hello(&channel).await.unwrap(), "a");
    assert_eq!(node.accepted(), 1);
}
