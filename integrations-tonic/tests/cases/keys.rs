//! What pickers see of a call, and how many connections carry it.

use std::collections::BTreeSet;

use discovery_core::picker::ConsistentHash;
use discovery_core::{Context, Member, Picker, PickerFactory};
use discovery_tonic::{Channel, ChannelBuilder, HashKey};
use tonic::Request;

use crate::stage::{Node, Stage, request, settle, until};
use discovery_greeter::{GreeterClient, HelloRequest};

fn hashing(stage: &Stage) -> ChannelBuilder {
    Channel::builder(stage.backend.watch("greeter"), ConsistentHash::with_slots(1 << 12))
}

/// Which servers answer these calls.
async fn servers(channel: &Channel, calls: impl Iterator<Item = Request<HelloRequest>>) -> BTreeSet<String> {
    let mut client = GreeterClient::new(channel.clone());
    let mut servers = BTreeSet::new();
    for call in calls {
        servers.insert(client.say_hello(call).await.unwrap().into_inner().server);
    }
    servers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p06_calls_of_one_key_go_to_one_server_wherever_the_key_stands() {
    let stage = Stage::set();
    let nodes = [Node::start("a").await, Node::start("b").await, Node::start("c").await];
    for node in &nodes {
        std::mem::forget(stage.join(node).await);
    }
    let by_header = hashing(&stage).with_hash_header("x-user".parse().unwrap()).build();
    let find = |head: &http::request::Parts| head.headers.get("x-account").map(|value| value.as_bytes().to_vec());
    let by_closure = hashing(&stage).with_hash_key(find).build();
    let plain = hashing(&stage).build();
    for channel in [&by_header, &by_closure, &plain] {
        settle(channel, &["a", "b", "c"]).await;
    }
    let with = |name: &'static str, value: String| {
        let mut call = Request::new(request("you"));
        call.metadata_mut().insert(name, value.parse().unwrap());
        call
    };
    let keyed = |key: String| {
        let mut call = Request::new(request("you"));
        call.extensions_mut().insert(HashKey::new(key));
        call
    };
    let user = |n: usize| format!("user-{n}");
    for (channel, make) in [
        (&by_header, &(|n| with("x-user", user(n))) as &dyn Fn(usize) -> Request<HelloRequest>),
        (&by_closure, &|n| with("x-account", user(n))),
        (&plain, &|n| keyed(user(n))),
        (&by_header, &|n| keyed(user(n))),
    ] {
        for n in 0..10 {
            assert_eq!(servers(channel, (0..5).map(|_| make(n))).await.len(), 1, "user {n}");
        }
        assert_eq!(servers(channel, (0..50).map(make)).await.len(), 3);
    }
    // The same key is the same server in every channel; another header is no key.
    let one = servers(&by_header, std::iter::once(with("x-user", user(1)))).await;
    assert_eq!(servers(&plain, std::iter::once(keyed(user(1)))).await, one);
    assert_eq!(servers(&plain, (0..50).map(|_| with("x-user", user(1)))).await.len(), 3);
}

/// Sends a call to the member that a header names.
struct Named;

impl Picker for Named {
    fn pick(&self, members: &[Member], context: &Context<'_>) -> Option<usize> {
        let name = context.header("x-server")?;
        assert!(context.method.is_some_and(|method| method == "/greeter.Greeter/SayHello"));
        members.iter().position(|member| member.instance().id().as_bytes() == name)
    }
}

impl PickerFactory for Named {
    fn build(&self, _members: &[Member]) -> Box<dyn Picker> {
        Box::new(Self)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picker_sees_method_and_headers() {
    let stage = Stage::set();
    let nodes = [Node::start("a").await, Node::start("b").await];
    for node in &nodes {
        std::mem::forget(stage.join(node).await);
    }
    let channel = Channel::new(stage.backend.watch("greeter"), Named);
    until("both are connected", || channel.connected() == 2).await;
    for name in ["b", "a", "b"] {
        let mut call = Request::new(request("you"));
        call.metadata_mut().insert("x-server", name.parse().unwrap());
        assert_eq!(GreeterClient::new(channel.clone()).say_hello(call).await.unwrap().into_inner().server, name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_has_as_many_connections_as_asked_for() {
    let stage = Stage::set();
    let mut a = Node::start("a").await;
    let registered = stage.join(&a).await;
    let builder = stage.channel_builder().with_connections(3);
    let channel = builder.build();
    until("three connections are open", || a.accepted() == 3).await;
    assert_eq!(channel.connected(), 1, "one instance is connected");
    settle(&channel, &["a"]).await;
    a.kill().await;
    until("the loss is noticed", || channel.connected() == 0).await;
    a.restart().await;
    until("three are open again", || a.accepted() == 3).await;
    settle(&channel, &["a"]).await;
    registered.deregister().await.unwrap();
    until("all are closed", || a.closed() == 3).await;
}
