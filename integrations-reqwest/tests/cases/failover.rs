//! Requests that reach nobody at first.

use std::convert::Infallible;
use std::time::Duration;

use discovery_core::{BalancerOptions, ErrorKind, Member, Outcome, Outliers};
use discovery_reqwest::{CallError, Client, Retries, WhenEmpty};
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};

use crate::stage::{Node, Stage, counts, dead, hello, member, members, settle, spread, until};

fn streaming() -> reqwest::Body {
    let parts = ["a ", "streamed ", "body"].map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
    reqwest::Body::wrap(StreamBody::new(stream::iter(parts)))
}

async fn echo(client: &Client, body: reqwest::Body) -> String {
    let response = client.post("http://orders/echo").body(body).send().await.unwrap();
    response.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_moves_on_with_its_body_and_only_the_first_one_is_refused() {
    let stage = Stage::set();
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let _registered = [stage.join(&a).await, stage.join(&b).await, stage.register("dead", &dead()).await];
    let client = stage.client();
    for _ in 0..10 {
        assert_eq!(echo(&client, streaming()).await, "a streamed body");
        assert_eq!(echo(&client, "bytes".into()).await, "bytes");
    }
    let shares = spread(&client, 80).await;
    assert_eq!(shares.values().sum::<usize>(), 80);
    assert_eq!(counts(&client, "dead"), [0, 0, 1, 0, 0], "{shares:?}");
    assert!(!member(&client, "dead").is_available());
    assert_eq!(a.requests() + b.requests(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_are_refused_each_is_left_alone_for_a_moment() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let mut registered = vec![stage.join(&a).await];
    for n in 0..5 {
        registered.push(stage.register(&format!("dead-{n}"), &dead()).await);
    }
    let client = stage.client();
    assert_eq!(spread(&client, 200).await["a"], 200);
    for n in 0..5 {
        let [_, _, refused, ..] = counts(&client, &format!("dead-{n}"));
        // Those beyond the quota of ejections are tried again, after a moment that doubles.
        assert!((1..=8).contains(&refused), "dead-{n} was tried {refused} times");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_instance_costs_no_idempotent_call_and_comes_back() {
    let stage = Stage::set();
    let (mut a, b, c) = (Node::start("a").await, Node::start("b").await, Node::start("c").await);
    let _registered = [stage.join(&a).await, stage.join(&b).await, stage.join(&c).await];
    let moment = Duration::from_millis(50);
    let ejections = Outliers::unreachable().with_ejection_time(moment, moment);
    let client = stage.builder().with_retries(Retries::default());
    let client = client.with_balancer(BalancerOptions::default().with_outliers(ejections)).build().unwrap();
    settle(&client, &["a", "b", "c"]).await;
    a.kill().await;
    let shares = spread(&client, 300).await;
    assert_eq!(shares.values().sum::<usize>(), 300);
    assert!(!shares.contains_key("a"), "{shares:?}");
    a.restart().await;
    settle(&client, &["a", "b", "c"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_while_everybody_is_down_and_one_at_a_time_tries() {
    let stage = Stage::set();
    let mut a = Node::start("a").await;
    let _a = stage.join(&a).await;
    a.kill().await;
    let client = stage.client();
    let balancer = client.middleware().balancer("http://orders").unwrap().unwrap();
    until("a is known", || balancer.members().len() == 1).await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { echo(&client, streaming()).await })
        })
        .collect();
    // The first refusal keeps the others away; then there is one attempt at a time.
    until("some attempts were in vain", || counts(&client, "a")[2] >= 3).await;
    assert!(counts(&client, "a")[2] <= 23);
    a.restart().await;
    for call in calls {
        assert_eq!(call.await.unwrap(), "a streamed body");
    }
    assert_eq!(counts(&client, "a")[4], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_everybody_was_refused_the_error_names_the_last_attempt() {
    let stage = Stage::set();
    let (one, other) = (dead(), dead());
    let _registered = [stage.register("one", &one).await, stage.register("other", &other).await];
    let client = stage.builder().with_when_empty(WhenEmpty::FailFast).build().unwrap();
    let error = hello(&client).await.unwrap_err();
    let refused = CallError::of(&error).unwrap();
    assert_eq!((refused.kind(), refused.service(), refused.known()), (ErrorKind::Unavailable, "orders", Some(2)));
    let address = refused.endpoint().unwrap().to_string();
    assert!([&one, &other].contains(&&address), "{address}");
    let text = refused.to_string();
    for part in ["\"orders\"", "2 known", "the set is live", "refused", &address] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    for id in ["one", "other"] {
        assert_eq!(counts(&client, id), [0, 0, 1, 0, 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_record_of_an_instance_ends_its_absence() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let held = stage.register("a", &dead()).await;
    let ejections = BalancerOptions::default().with_outliers(None);
    let client = stage.builder().with_balancer(ejections).build().unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { hello(&client).await }
    });
    let refused = |member: &Member| member.count(Outcome::Unreachable) > 0;
    until("it was refused", || members(&client).iter().any(refused)).await;
    held.update(|instance| instance.endpoints([format!("http://{}", a.address()).parse().unwrap()])).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "a");
    assert_eq!(client.middleware().held(), (1, 1));
}
