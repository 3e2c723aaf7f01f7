//! Calls of which a second copy is sent.

use discovery_core::Outcome;
use discovery_core::attempts::{HedgeOptions, RetryPolicy};
use discovery_core::picker::RoundRobin;
use discovery_tonic::{Channel, Retries};

use crate::stage::{Node, Stage, member, request, settle};
use discovery_greeter::GreeterClient;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_takes_longer_than_nearly_all_is_answered_by_another_instance() {
    let stage = Stage::set();
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let _registered = [stage.join(&a).await, stage.join(&b).await];
    let retries =
        Retries::new(RetryPolicy::default().with_attempts(1)).with_hedging(HedgeOptions::default().with_budget(0.5));
    let channel = Channel::builder(stage.backend.watch("greeter"), RoundRobin::new()).with_retries(retries).build();
    settle(&channel, &["a", "b"]).await;
    let mut client = GreeterClient::new(channel.clone());
    // Until it knows what is slow.
    for _ in 0..1_000 {
        client.say_hello(request("you")).await.unwrap();
    }
    // What a hangs for is answered by b. The budget lasts also where a busy machine has spent some of it before.
    for _ in 0..8 {
        let reply = client.say_hello(request("at:a:wait")).await.unwrap().into_inner();
        assert_eq!(reply.server, "b");
    }
    // Whoever was waited for in vain failed, and nothing is left open.
    assert!(member(&channel, "a").count(Outcome::Failure) >= 4);
    assert_eq!((member(&channel, "a").pending(), member(&channel, "b").pending()), (0, 0));
}
