//! Requests that are sent again.

use std::time::Duration;

use discovery_core::attempts::RetryPolicy;
use discovery_reqwest::{CallError, Client, Retries};
use http::{Method, StatusCode};
use reqwest_middleware::ClientWithMiddleware;
use reqwest_retry::{RetryError, RetryTransientMiddleware};
use retry_policies::policies::ExponentialBackoff;

use crate::stage::{Node, Stage, counts, dead, settings, until};

struct Two {
    stage: Stage,
    nodes: [Node; 2],
    _registered: Vec<discovery_core::Registration>,
}

async fn two() -> Two {
    let stage = Stage::set();
    let nodes = [Node::start("a").await, Node::start("b").await];
    let registered = vec![stage.join(&nodes[0]).await, stage.join(&nodes[1]).await];
    Two { stage, nodes, _registered: registered }
}

impl Two {
    async fn client(&self, retries: impl Into<Option<Retries>>) -> Client {
        let client = self.stage.builder().with_retries(retries).build().unwrap();
        let balancer = client.middleware().balancer("http://orders").unwrap().unwrap();
        until("both are known", || balancer.candidates() >= 2).await;
        client
    }

    fn requests(&self) -> [usize; 2] {
        [0, 1].map(|n| self.nodes[n].requests())
    }
}

async fn status(client: &Client, method: Method, code: u16) -> StatusCode {
    client.request(method, format!("http://orders/status/{code}")).body("x").send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotent_request_is_sent_again_to_another_instance() {
    let two = two().await;
    let client = two.client(Retries::default()).await;
    assert_eq!(status(&client, Method::PUT, 503).await, 503);
    assert_eq!(two.requests(), [1, 1]);
    assert_eq!([counts(&client, "a"), counts(&client, "b")], [[0, 1, 0, 0, 0]; 2]);
    // Neither what may not be done twice, nor what the application answers.
    assert_eq!(status(&client, Method::POST, 503).await, 503);
    assert_eq!(status(&client, Method::PUT, 500).await, 500);
    assert_eq!(status(&client, Method::PUT, 404).await, 404);
    assert_eq!(two.requests().iter().sum::<usize>(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_are_as_they_are_set_and_can_be_switched_off() {
    let two = two().await;
    let retries = Retries::default()
        .with_policy(RetryPolicy::default().with_attempts(4).with_backoff(Duration::ZERO, Duration::ZERO, 1.0))
        .with_methods([Method::POST])
        .with_statuses([StatusCode::IM_A_TEAPOT]);
    let client = two.client(retries).await;
    status(&client, Method::POST, 418).await;
    assert_eq!(two.requests(), [2, 2]);
    status(&client, Method::PUT, 418).await;
    status(&client, Method::POST, 503).await;
    status(&two.client(None).await, Method::GET, 503).await;
    assert_eq!(two.requests().iter().sum::<usize>(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_retried_within_the_budget() {
    let two = two().await;
    let client = two.client(Retries::default()).await;
    for _ in 0..50 {
        status(&client, Method::GET, 503).await;
    }
    assert_eq!(two.requests().iter().sum::<usize>(), 52, "ten tokens are two calls that fail twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_is_a_reason_to_send_again_and_a_timeout_is_none() {
    let mut two = two().await;
    let client = two.client(Retries::default()).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.get("http://orders/wait").send().await.unwrap().text().await.unwrap() }
    });
    until("it is there", || two.requests().iter().sum::<usize>() == 1).await;
    let [first, other] = if two.requests() == [1, 0] { [0, 1] } else { [1, 0] };
    two.nodes[other].open_gate();
    two.nodes[first].kill().await;
    assert_eq!(call.await.unwrap(), two.nodes[other].name());
    let two = self::two().await;
    let client = two.client(Retries::default()).await;
    // Long enough to arrive there.
    let late = client.get("http://orders/wait").timeout(Duration::from_secs(2)).send().await.unwrap_err();
    assert!(late.is_timeout());
    assert_eq!(two.requests().iter().sum::<usize>(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside_a_retry_middleware_every_attempt_is_picked_for() {
    let two = two().await;
    let discovery = two.client(None).await.middleware().clone();
    let policy = ExponentialBackoff::builder().retry_bounds(Duration::from_millis(1), Duration::from_millis(1));
    let client: ClientWithMiddleware = reqwest_middleware::ClientBuilder::new(settings().build().unwrap())
        .with(RetryTransientMiddleware::new_with_policy(policy.build_with_max_retries(3)))
        .with(discovery)
        .build();
    let response = client.get("http://orders/status/500").send().await.unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(two.requests(), [2, 2]);
    // And the reason is found in what the middleware makes of it.
    let nobody = client.get("http://nobody/").timeout(Duration::from_millis(50)).send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(retried) = &nobody else { panic!("{nobody:?}") };
    let Some(RetryError::Error(nobody)) = retried.downcast_ref() else { panic!("{retried:?}") };
    assert_eq!(CallError::of(nobody).unwrap().service(), "nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_costs_nothing_of_the_budget() {
    let two = two().await;
    let mut dead_ones = Vec::new();
    for n in 0..10 {
        dead_ones.push(two.stage.register(&format!("dead-{n}"), &dead()).await);
    }
    let client = two.client(Retries::default().with_budget(2, 0.0)).await;
    for _ in 0..40 {
        client.get("http://orders/name").send().await.unwrap().text().await.unwrap();
    }
    let before: usize = two.requests().iter().sum();
    assert_eq!(before, 40);
    status(&client, Method::GET, 503).await;
    assert_eq!(two.requests().iter().sum::<usize>(), 41, "a budget of two permits none after one failure");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_500_gives_nothing_back_to_the_budget() {
    let two = two().await;
    let client = two.client(Retries::default().with_budget(10, 1.0)).await;
    let sent = async |code| {
        let before: usize = two.requests().iter().sum();
        status(&client, Method::GET, code).await;
        two.requests().iter().sum::<usize>() - before
    };
    while sent(503).await == 2 {}
    for _ in 0..10 {
        assert_eq!(sent(500).await, 1);
    }
    assert_eq!(sent(503).await, 1, "after failures only");
    for _ in 0..10 {
        sent(404).await;
    }
    assert_eq!(sent(503).await, 2);
}
