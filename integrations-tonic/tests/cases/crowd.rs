//! Many calls of every kind at the same time.

use discovery_core::Outcome;
use futures_util::{StreamExt, future, stream};
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status};

use crate::stage::{Node, Stage, request, settle, until};
use discovery_greeter::{GreeterClient, HelloRequest};

const CALLS: usize = 10_000;
const STREAMS: usize = 64;
const MESSAGES: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_ten_thousand_calls_and_sixty_four_streams_lose_nothing() {
    let stage = Stage::set();
    let nodes = [Node::start("a").await, Node::start("b").await, Node::start("c").await];
    for node in &nodes {
        std::mem::forget(stage.join(node).await);
    }
    let channel = stage.channel();
    settle(&channel, &["a", "b", "c"]).await;
    let settled: u64 = count(&channel, Outcome::Success);

    // An interceptor, metadata and compression of both directions.
    let intercept = |mut request: Request<()>| {
        request.metadata_mut().insert("x-through", MetadataValue::from_static("an-interceptor"));
        Ok::<_, Status>(request)
    };
    let unary = GreeterClient::with_interceptor(channel.clone(), intercept)
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let calls = stream::iter(0..CALLS).map(|n| {
        let mut client = unary.clone();
        async move {
            let name = format!("echo:{n}:{}", "x".repeat(n % 300));
            let mut call = Request::new(HelloRequest { name: name.clone(), count: 0 });
            call.metadata_mut().insert("x-number", n.into());
            let reply = client.say_hello(call).await.unwrap();
            assert_eq!(reply.metadata().get("grpc-encoding").unwrap(), "gzip");
            assert_eq!(reply.into_inner().message, format!("{name} an-interceptor {n}"));
        }
    });
    let streams = (0..STREAMS).map(|number| {
        let mut client = GreeterClient::new(channel.clone());
        async move {
            let names = move |n: usize| format!("{number}-{n}");
            let replies =
                client.greet_each(stream::iter((0..MESSAGES).map(move |n| request(&names(n))))).await.unwrap();
            let replies: Vec<_> = replies.into_inner().map(|reply| reply.unwrap().message).collect().await;
            assert_eq!(replies, (0..MESSAGES).map(names).collect::<Vec<_>>());
        }
    });
    future::join(calls.buffer_unordered(128).for_each(|()| future::ready(())), future::join_all(streams)).await;

    until("nothing is in flight", || channel.balancer().members().iter().all(|member| member.pending() == 0)).await;
    assert_eq!(count(&channel, Outcome::Success) - settled, (CALLS + STREAMS) as u64);
    let others = [Outcome::Failure, Outcome::Unreachable, Outcome::Cancelled];
    assert_eq!(others.map(|outcome| count(&channel, outcome)), [0; 3]);
    // One connection to each carried all of it.
    assert_eq!(nodes.each_ref().map(Node::accepted), [1; 3]);
}

fn count(channel: &discovery_tonic::Channel, outcome: Outcome) -> u64 {
    channel.balancer().members().iter().map(|member| member.count(outcome)).sum()
}
