//! Calls that end early: reset by the server, left by a goodbye, broken off by either side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use discovery_core::attempts::RetryPolicy;
use discovery_core::picker::RoundRobin;
use discovery_core::{Outcome, WhenEmpty};
use discovery_greeter::{GreeterClient, HelloRequest};
use discovery_tonic::{Channel, Retries};
use futures_util::{StreamExt, stream};
use tonic::{Code, Request};
use tower_service::Service;

use crate::stage::raw::{CANCEL, NO_ERROR, REFUSED_STREAM, Raw, WINDOW, scene, scene_with};
use crate::stage::{Node, Stage, begin, end, hello, member, pending, request, settle, until, within};

fn failures(channel: &Channel) -> u64 {
    channel.balancer().members().iter().map(|member| member.count(Outcome::Failure)).sum()
}

/// A request whose answer is a stream.
fn counting() -> HelloRequest {
    HelloRequest { name: "you".to_owned(), count: 1 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_the_server_cancels_is_cancelled_and_not_sent_again() {
    let retries = Retries::new(RetryPolicy::default());
    let (_stage, _raw, channel, mut wire) = scene_with(&[], |builder| builder.with_retries(retries)).await;
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    tokio::spawn(async move {
        while let Some(id) = wire.next_request().await {
            count.fetch_add(1, Ordering::SeqCst);
            wire.reset(id, CANCEL).await;
        }
    });
    let status = within("the call's end", hello(&channel)).await.unwrap_err();
    assert_eq!((status.code(), seen.load(Ordering::SeqCst)), (Code::Cancelled, 1), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_beyond_two_goodbyes_is_unavailable() {
    let (stage, raw) = (Stage::set(), Raw::bind().await);
    let _raw = stage.register("raw", &raw.url()).await;
    raw.each(|mut wire| async move {
        wire.opened().await;
        wire.goodbye(0, NO_ERROR, "").await;
        wire.drain().await;
    });
    let status = within("the call's end", hello(&stage.channel())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_request_beyond_a_goodbye_is_unavailable() {
    let (_stage, _raw, channel, mut wire) = scene(&[]).await;
    tokio::spawn(async move {
        wire.opened().await;
        wire.goodbye(0, NO_ERROR, "").await;
        wire.drain().await;
    });
    let requests = stream::iter([request("you")]).chain(stream::pending());
    let status = within("the call's end", GreeterClient::new(channel).greet_all(requests)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_call_is_sent_once_more_and_not_once_for_each_attempt() {
    let (stage, raw) = (Stage::set(), Raw::bind().await);
    let _raw = stage.register("raw", &raw.url()).await;
    let refused = raw.refuse();
    let retries = Retries::new(RetryPolicy::default().with_attempts(2));
    let channel = stage.channel_builder().with_retries(retries).build();
    within("the call's end", hello(&channel)).await.unwrap_err();
    // Two attempts of the policy, and one that costs none.
    assert_eq!(refused.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_arrives_whole_the_second_time() {
    const MEBIBYTE: u32 = 1 << 20;
    for by_goodbye in [false, true] {
        let (_stage, raw, channel, mut wire) = scene(&[]).await;
        let text = "x".repeat(300_000);
        let message = request(&text);
        let mut client = GreeterClient::new(channel.clone());
        let call = tokio::spawn(async move { client.say_hello(message).await });
        let id = wire.opened().await;
        // As much of it as the windows allow at first.
        let mut size = 0;
        while size < 65_535 {
            size += wire.piece(id).await.0;
        }
        if by_goodbye {
            wire.goodbye(0, NO_ERROR, "").await;
            tokio::spawn(wire.drain());
            wire = within("a new dial", raw.accept(&[(WINDOW, MEBIBYTE)])).await;
        } else {
            wire.settings(&[(WINDOW, MEBIBYTE)]).await;
            wire.reset(id, REFUSED_STREAM).await;
        }
        wire.window(0, MEBIBYTE).await;
        let again = wire.opened().await;
        let (mut size, mut is_last) = (0, false);
        while !is_last {
            let (more, last) = wire.piece(again).await;
            (size, is_last) = (size + more, last);
        }
        assert!(size > text.len(), "{size} bytes");
        wire.answer(again).await;
        within("the call's end", call).await.unwrap().unwrap();
        assert_eq!((pending(&channel), failures(&channel)), (0, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_goodbye_covers_is_not_sent_again() {
    for last in [1, 0x7fff_ffff] {
        let (_stage, raw, channel, mut wire) = scene(&[]).await;
        let call = begin(&channel).await;
        wire.request().await;
        wire.goodbye(last, NO_ERROR, "").await;
        wire.heard().await;
        drop(wire);
        // Nobody would answer it a second time, so it would not end.
        assert_eq!(end(call).await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(pending(&channel), 0);
        // The next connection is there for the next call.
        tokio::spawn(within("a new dial", raw.accept(&[])).await.serve());
        within("the next call's end", hello(&channel)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_answer_with_a_reset_is_a_success() {
    let (_stage, _raw, channel, mut wire) = scene(&[(WINDOW, 10)]).await;
    tokio::spawn(async move {
        let id = wire.opened().await;
        wire.answer(id).await;
        wire.reset(id, NO_ERROR).await;
        wire.drain().await;
    });
    let (alive, ended) = tokio::sync::oneshot::channel::<()>();
    let endless = stream::unfold(alive, |alive| async move { Some((request("you"), alive)) });
    within("the call's end", GreeterClient::new(channel.clone()).greet_all(endless)).await.unwrap();
    // An error says that the other end is gone, as it should be.
    assert!(within("the request's end", ended).await.is_err());
    until("nothing is in flight", || pending(&channel) == 0).await;
    assert_eq!(member(&channel, "raw").count(Outcome::Success), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_cancelled_calls_do_not_end_the_connection() {
    // An HTTP/2 library may take 1,024 answers on streams that it has reset for a fault of the server.
    const CALLS: usize = 1_100;
    let (_stage, _raw, channel, mut wire) = scene(&[]).await;
    let kept = begin(&channel).await;
    let id = wire.request().await;
    let (mut calls, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        calls.push(begin(&channel).await);
    }
    for _ in 0..CALLS {
        ids.push(wire.request().await);
    }
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    until("all others are cancelled", || pending(&channel) == 1).await;
    // The server answers before it reads that nobody waits for it.
    for id in ids {
        wire.answer(id).await;
    }
    wire.heard().await;
    wire.answer(id).await;
    end(kept).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_messages_that_are_read_late_do_not_end_the_connection() {
    // 100 kB, a twentieth of what the windows let a server send ahead.
    const MESSAGES: usize = 20_000;
    let (_stage, _raw, channel, mut wire) = scene(&[]).await;
    let mut client = GreeterClient::new(channel);
    let (answer, ()) = tokio::join!(client.count_hellos(counting()), async {
        let id = wire.request().await;
        wire.head(id).await;
        for _ in 0..MESSAGES {
            wire.message(id).await;
        }
        wire.trailers(id).await;
        wire.heard().await;
    });
    let mut answer = answer.unwrap().into_inner();
    let mut got = 0;
    while within("a message", answer.message()).await.unwrap_or_else(|it| panic!("after {got}: {it:?}")).is_some() {
        got += 1;
    }
    assert_eq!(got, MESSAGES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_a_broken_request_fails_its_call_but_is_not_the_instances_failure() {
    let stage = Stage::set();
    let node = Node::start("a").await;
    let _node = stage.join(&node).await;
    let channel = stage.channel();
    settle(&channel, &["a"]).await;
    // One that panics.
    let requests = stream::iter(0..3).then(|n| async move {
        tokio::task::yield_now().await;
        assert!(n < 2, "as it was told");
        request("you")
    });
    within("the call's end", GreeterClient::new(channel.clone()).greet_all(requests)).await.unwrap_err();
    assert_eq!((pending(&channel), failures(&channel)), (0, 0));
    // One that is too large to be encoded.
    let mut client = GreeterClient::new(channel.clone()).max_encoding_message_size(10);
    let large = request(&"x".repeat(100));
    within("the call's end", client.say_hello(large.clone())).await.unwrap_err();
    let requests = stream::iter([request("you"), large]);
    within("the call's end", client.greet_all(requests)).await.unwrap_err();
    assert_eq!((pending(&channel), failures(&channel)), (0, 0));
    assert_eq!((hello(&channel).await.unwrap().as_str(), node.accepted()), ("a", 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_a_request_that_http2_forbids_is_not_sent() {
    let retries = Retries::new(RetryPolicy::default());
    let (_stage, _raw, mut channel, mut wire) = scene_with(&[], |builder| builder.with_retries(retries)).await;
    let call = http::Request::builder().uri("/greeter.Greeter/SayHello").header("te", "gzip");
    let status = within("the call's end", channel.call(call.body(Default::default()).unwrap())).await.unwrap_err();
    assert_eq!((status.code(), failures(&channel)), (Code::Internal, 0), "{status:?}");
    // The first request that the server sees is the next one.
    let call = begin(&channel).await;
    let id = wire.opened().await;
    wire.answer(id).await;
    end(call).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_names_the_address_the_service_and_how_many_are_known() {
    let (_stage, raw, channel, mut wire) = scene(&[]).await;
    let mut client = GreeterClient::new(channel);
    let (answer, ()) = tokio::join!(client.count_hellos(counting()), async {
        let id = wire.request().await;
        wire.head(id).await;
        wire.message(id).await;
    });
    let mut answer = answer.unwrap().into_inner();
    answer.message().await.unwrap().unwrap();
    drop(wire);
    let status = within("the stream's end", answer.message()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    for part in [raw.address().to_string().as_str(), "\"greeter\"", "1 known"] {
        assert!(status.message().contains(part), "{status:?} lacks {part}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_fast_does_not_wait_for_a_server_that_greets_and_closes() {
    let (stage, raw) = (Stage::set(), Raw::bind().await);
    let _raw = stage.register("raw", &raw.url()).await;
    // With the long pauses between dials that are the default.
    let builder = Channel::builder(stage.backend.watch("greeter"), RoundRobin::new());
    let channel = builder.with_when_empty(WhenEmpty::FailFast).build();
    let dials = raw.each(|mut wire| async move { wire.heard().await });
    until("it is dialled with pauses", || dials.load(Ordering::SeqCst) >= 5).await;
    for _ in 0..5 {
        let begun = Instant::now();
        within("the call's end", hello(&channel)).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_ends_a_call_whose_answer_stops_after_its_head() {
    let (_stage, _raw, channel, mut wire) = scene(&[]).await;
    let mut call = Request::new(request("you"));
    call.set_timeout(Duration::from_secs(1));
    let mut client = GreeterClient::new(channel.clone());
    let call = tokio::spawn(async move { client.say_hello(call).await });
    let id = wire.request().await;
    wire.head(id).await;
    tokio::spawn(wire.drain());
    let status = within("the call's end", call).await.unwrap().unwrap_err();
    assert_eq!((status.code(), failures(&channel)), (Code::DeadlineExceeded, 1), "{status:?}");
}
