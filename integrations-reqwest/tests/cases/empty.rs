//! Requests that find nobody.

use std::time::Duration;

use discovery_core::ErrorKind;
use discovery_reqwest::{CallError, Client, WhenEmpty};
use tokio::time::Instant;

use crate::stage::{Node, Stage, hello, until};

async fn hello_within(client: &Client, timeout: Duration) -> CallError {
    let error = client.get("http://orders/name").timeout(timeout).send().await.unwrap_err();
    CallError::of(&error).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_nobody_waits_and_succeeds_when_somebody_comes() {
    let stage = Stage::set();
    let client = stage.client();
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { hello(&client).await })
        })
        .collect();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    for call in waiting {
        assert_eq!(call.await.unwrap().unwrap(), "a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_to_nobody_ends_with_the_reason_at_its_timeout() {
    let stage = Stage::set();
    let client = stage.client();
    let timeout = Duration::from_millis(300);
    let started = Instant::now();
    let error = hello_within(&client, timeout).await;
    let late = started.elapsed().checked_sub(timeout).unwrap();
    assert!(late <= Duration::from_millis(50), "{late:?} late");
    assert_eq!((error.kind(), error.known(), error.is_retryable()), (ErrorKind::NoInstance, Some(0), true));
    let text = error.to_string();
    for part in ["\"orders\"", "no instance is registered", "the set is live", "waited 300"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let started = Instant::now();
    CallError::of(&hello(&client).await.unwrap_err()).unwrap();
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_set_names_the_cause_at_the_store() {
    let stage = Stage::set();
    stage.link.cut();
    let error = hello_within(&stage.client(), Duration::from_secs(3)).await;
    let text = error.to_string();
    assert!(error.freshness().unwrap().is_loading());
    assert!(text.contains("no set was read") && text.contains("the link is cut"), "{text}");
    // It is not waited for by those who do not wait.
    let client = stage.builder().with_when_empty(WhenEmpty::FailFast).build().unwrap();
    let started = Instant::now();
    hello(&client).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_fast_waits_for_the_first_set_and_for_nobody_to_come() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let held = stage.join(&a).await;
    let client = stage.builder().with_when_empty(WhenEmpty::FailFast).build().unwrap();
    assert_eq!(hello(&client).await.unwrap(), "a");
    held.deregister().await.unwrap();
    let balancer = client.middleware().balancer("http://orders").unwrap().unwrap();
    until("a is gone", || balancer.members().is_empty()).await;
    let error = hello_within(&client, Duration::from_secs(60)).await;
    assert_eq!(error.kind(), ErrorKind::NoInstance);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_backend_is_not_waited_for() {
    let stage = Stage::set();
    let client = stage.client();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { hello_within(&client, Duration::from_secs(600)).await }
    });
    until("it is watched", || client.middleware().held().0 == 1).await;
    stage.backend.close(Duration::from_secs(5)).await.unwrap();
    assert_eq!(waiting.await.unwrap().kind(), ErrorKind::Closed);
}
