//! A pick for each request.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::picker::ConsistentHash;
use discovery_core::{Balancer, Context, Error, ErrorKind, Instance, Outcome};
use discovery_tower::{BalanceLayer, ByResult, Classify};
use hyper_util::client::legacy;
use tower::retry::{Policy, RetryLayer};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::stage::{SOON, Stage, Web, ask, http, known, member, outcomes, settle, spread, until};

/// Calls a path of the instance that was picked.
fn caller(
    path: &'static str,
) -> impl Service<(Arc<Instance>, ()), Response = String, Error = BoxError, Future: Send> + Clone + Send + 'static {
    let client = http();
    service_fn(move |(instance, ()): (Arc<Instance>, ())| {
        let client = client.clone();
        async move { ask(&client, &format!("{}{path}", instance.endpoints()[0])).await }
    })
}

/// No connection is not the same as a failure.
fn classify(result: Result<&String, &BoxError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(error) if error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) => {
            Outcome::Unreachable
        }
        Err(_) => Outcome::Failure,
    }
}

/// Tries once more.
#[derive(Clone)]
struct Again(usize);

impl Policy<(), String, BoxError> for Again {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, (): &mut (), result: &mut Result<String, BoxError>) -> Option<Self::Future> {
        (result.is_err() && self.0 > 0).then(|| {
            self.0 -= 1;
            std::future::ready(())
        })
    }

    fn clone_request(&mut self, (): &()) -> Option<()> {
        Some(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_each_request_is_picked_for_and_its_outcome_reported_once() {
    let stage = Stage::set();
    let (a, mut b) = (Web::start("a").await, Web::start("b").await);
    let _registered = [stage.join(&a).await, stage.join(&b).await];
    let balancer = stage.balancer();
    known(&balancer, 2).await;
    let layer = BalanceLayer::new(balancer.clone()).with_classifier(classify);
    let mut web = layer.layer(caller("/"));
    let counts = spread(&mut web, 100).await;
    assert_eq!((counts["a"], counts["b"]), (50, 50));
    assert_eq!((outcomes(&balancer, "a"), outcomes(&balancer, "b")), ([50, 0, 0, 0], [50, 0, 0, 0]));

    // Inside of a retry each attempt is a pick of its own, so nobody sees that one is gone, and it is asked once.
    b.kill().await;
    let mut web = ServiceBuilder::new().layer(RetryLayer::new(Again(1))).layer(layer).service(caller("/"));
    assert_eq!(spread(&mut web, 100).await.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 100)]);
    assert_eq!((outcomes(&balancer, "a"), outcomes(&balancer, "b")), ([150, 0, 0, 0], [50, 0, 1, 0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_a_request_that_is_dropped_is_cancelled() {
    let stage = Stage::set();
    let a = Web::start("a").await;
    let _a = stage.join(&a).await;
    let balancer = stage.balancer();
    known(&balancer, 1).await;
    let waiting = tokio::spawn(BalanceLayer::new(balancer.clone()).layer(caller("/wait")).oneshot(()));
    until("a request is in flight", || member(&balancer, "a").pending() == 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!((outcomes(&balancer, "a"), member(&balancer, "a").pending()), ([0, 0, 0, 1], 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_instance_a_request_fails_with_the_reason_or_waits() {
    let stage = Stage::set();
    let layer = BalanceLayer::new(stage.balancer()).with_wait(Duration::ZERO);
    let error = layer.layer(caller("/")).oneshot(()).await.unwrap_err();
    let error = error.downcast::<Error>().unwrap();
    assert!(error.kind() == ErrorKind::NoInstance && error.to_string().contains("\"web\""), "{error}");

    let waiting = tokio::spawn(layer.clone().with_wait(SOON).layer(caller("/")).oneshot(()));
    let a = Web::start("a").await;
    let _a = stage.join(&a).await;
    assert_eq!(waiting.await.unwrap().unwrap(), "a");

    stage.backend.close(SOON).await.unwrap();
    settle(&mut layer.layer(caller("/")), &["a"]).await;
}

/// Requests with one key belong together.
#[derive(Clone)]
struct ByUser;

impl<Response, Error> Classify<String, Response, Error> for ByUser {
    fn context<'a>(&self, user: &'a String) -> Context<'a> {
        Context::default().with_key(user.as_bytes())
    }

    fn outcome(&self, result: Result<&Response, &Error>) -> Outcome {
        Classify::<String, Response, Error>::outcome(&ByResult, result)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_picker_sees_what_the_classifier_says_of_the_request() {
    let stage = Stage::set();
    let mut registered = Vec::new();
    for port in 1..=5 {
        registered.push(stage.register(&format!("web-{port}"), &format!("http://10.0.0.1:{port}")).await);
    }
    let balancer = Balancer::new(stage.backend.watch("web"), ConsistentHash::default());
    known(&balancer, 5).await;
    let whom = service_fn(async |(instance, _): (Arc<Instance>, String)| Ok::<_, BoxError>(instance.id().to_owned()));
    let web = BalanceLayer::new(balancer).with_classifier(ByUser).layer(whom);
    let mut used = std::collections::BTreeSet::new();
    for user in 0..100 {
        let first = web.clone().oneshot(format!("user-{user}")).await.unwrap();
        assert_eq!(web.clone().oneshot(format!("user-{user}")).await.unwrap(), first);
        used.insert(first);
    }
    assert_eq!(used.len(), 5, "{used:?}");
}
