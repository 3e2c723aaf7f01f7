//! Connections come and go with the instances, and nothing stays behind.

use std::time::Duration;

use discovery_core::{Endpoint, Instance};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::stage::{Node, Stage, hello, member, settle, stays, until};
use discovery_greeter::GreeterClient;
use discovery_greeter::HelloRequest;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_applies_without_requests() {
    let stage = Stage::set();
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let channel = stage.channel();
    let held = stage.join(&a).await;
    until("a is dialled", || a.accepted() == 1 && channel.connected() == 1).await;
    let _b = stage.join(&b).await;
    until("b is dialled", || b.accepted() == 1 && channel.connected() == 2).await;
    held.update(|instance| instance.weight(7).zone("z")).await.unwrap();
    held.deregister().await.unwrap();
    until("a is closed", || a.closed() == 1 && channel.connected() == 1).await;
    assert_eq!((a.accepted(), b.accepted(), b.closed()), (1, 1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_address_under_the_same_id_takes_a_new_connection() {
    let stage = Stage::set();
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let held = stage.join(&a).await;
    let channel = stage.channel();
    settle(&channel, &["a"]).await;
    let address = b.address();
    let endpoint = Endpoint::new("grpc", &address.ip().to_string(), address.port()).unwrap();
    held.update(|instance| instance.endpoints([endpoint])).await.unwrap();
    settle(&channel, &["b"]).await;
    until("a is closed", || a.closed() == 1).await;
    assert_eq!((a.accepted(), b.accepted()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_what_is_in_flight_finishes_after_its_instance_is_gone() {
    let stage = Stage::set();
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let held = stage.join(&a).await;
    let channel = stage.channel();
    settle(&channel, &["a"]).await;
    let mut client = GreeterClient::new(channel.clone());
    let mut stream =
        client.count_hellos(HelloRequest { name: "wait".to_owned(), count: 2 }).await.unwrap().into_inner();
    let mut unanswered = tokio::spawn({
        let mut client = client.clone();
        async move { client.say_hello(HelloRequest { name: "wait".to_owned(), count: 0 }).await }
    });
    assert_eq!(stream.message().await.unwrap().unwrap().message, "0");
    until("both are with a", || member(&channel, "a").pending() == 2).await;
    let _b = stage.join(&b).await;
    held.deregister().await.unwrap();
    settle(&channel, &["b"]).await;
    until("only b is connected", || channel.connected() == 1).await;
    assert!(timeout(Duration::from_millis(50), &mut unanswered).await.is_err(), "the call ended with its instance");
    assert_eq!(a.closed(), 0);
    a.open_gate();
    assert_eq!(unanswered.await.unwrap().unwrap().into_inner().server, "a");
    assert_eq!(stream.message().await.unwrap().unwrap().message, "1");
    assert!(stream.message().await.unwrap().is_none());
    until("a is closed", || a.closed() == 1).await;
    assert_eq!(a.accepted(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_two_hundred_departed_instances_leave_no_task_no_socket_and_no_dial() {
    let stage = Stage::set();
    let channel = stage.channel();
    let a = Node::start("a").await;
    // Something else stays registered, so that the backend keeps its lease from round to round.
    let other = Instance::builder("other").endpoint("grpc://127.0.0.1:1").build().unwrap();
    let _other = stage.backend.register(other, Default::default()).await.unwrap();
    let first = stage.join(&a).await;
    settle(&channel, &["a"]).await;
    first.deregister().await.unwrap();
    until("a is closed", || a.closed() == 1).await;
    let metrics = Handle::current().metrics();
    let baseline = metrics.num_alive_tasks();

    let mut ports = Vec::new();
    for round in 0..200 {
        let mut node = Node::start(&format!("node-{round}")).await;
        let held = stage.join(&node).await;
        for _ in 0..5 {
            assert_eq!(hello(&channel).await.unwrap(), node.name());
        }
        // Half of them go before their record does, so that the redial is what has to end.
        if round % 2 == 0 {
            node.kill().await;
            until("the loss is noticed", || channel.connected() == 0).await;
        }
        held.deregister().await.unwrap();
        until("it is closed", || node.closed() == 1 && node.accepted() == 1).await;
        node.kill().await;
        ports.push(node.address());
    }
    // What others have bound meanwhile is not ours to watch.
    let listen = |address: &std::net::SocketAddr| std::net::TcpListener::bind(address).ok();
    let ghosts: Vec<_> = ports.iter().rev().filter_map(listen).take(10).collect();
    until("no task is left", || metrics.num_alive_tasks() <= baseline).await;
    assert_eq!(channel.connected(), 0);
    ghosts.iter().for_each(|ghost| ghost.set_nonblocking(true).unwrap());
    // Ten times the longest wait between two dials of this channel.
    let nobody_dials = || ghosts.iter().all(|ghost| ghost.accept().is_err());
    stays(Duration::from_secs(1), "no departed instance is dialled", nobody_dials).await;
    assert_eq!(metrics.num_alive_tasks(), baseline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_nothing_is_left_after_the_last_clone() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    // Nobody answers there, so it is still being dialled when the channel is dropped.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _a = stage.join(&a).await;
    let _silent = stage.register("silent", &format!("grpc://{}", silent.local_addr().unwrap())).await;
    let watch = stage.backend.watch("greeter");
    watch.ready(Duration::from_secs(5)).await.unwrap();
    let metrics = Handle::current().metrics();
    let baseline = metrics.num_alive_tasks();
    let channel = stage.channel();
    settle(&channel.clone(), &["a"]).await;
    let mut client = GreeterClient::new(channel);
    let mut stream =
        client.count_hellos(HelloRequest { name: "wait".to_owned(), count: 2 }).await.unwrap().into_inner();
    drop(client);
    a.open_gate();
    for n in ["0", "1"] {
        assert_eq!(stream.message().await.unwrap().unwrap().message, n);
    }
    assert!(stream.message().await.unwrap().is_none());
    until("a is closed", || a.closed() == 1).await;
    until("no task is left", || metrics.num_alive_tasks() <= baseline).await;
}
