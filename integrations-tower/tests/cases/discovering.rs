//! tower's own balancer over a watched service.

use std::sync::Arc;

use discovery_core::{Endpoint, Instance, State};
use discovery_tower::Discovered;
use futures_util::FutureExt;
use tower::balance::p2c::Balance;
use tower::load::{CompleteOnResponse, PendingRequests};
use tower::util::BoxService;
use tower::{BoxError, ServiceExt, service_fn};

use crate::stage::{Stage, Web, ask, http, settle, spread, until, url};

type Peer = PendingRequests<BoxService<(), String, BoxError>>;

type Make = fn(&Arc<Instance>, &Endpoint) -> Peer;

/// A service for an instance, which calls it over HTTP.
fn make(_: &Arc<Instance>, endpoint: &Endpoint) -> Peer {
    let (client, url) = (http(), endpoint.to_string());
    let call = service_fn(move |()| {
        let (client, url) = (client.clone(), url.clone());
        async move { ask(&client, &url).await }
    });
    PendingRequests::new(BoxService::new(call), CompleteOnResponse::default())
}

fn balance(stage: &Stage) -> Balance<Discovered<Make>, ()> {
    Balance::new(Discovered::new(stage.backend.watch("web"), &["http", "tcp"], make))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn towers_balance_calls_who_is_there_and_nobody_else() {
    let stage = Stage::set();
    let (a, b, mut c) = (Web::start("a").await, Web::start("b").await, Web::start("c").await);
    let (_a, registered, gone) = (stage.join(&a).await, stage.join(&b).await, stage.join(&c).await);
    let mut web = balance(&stage);
    settle(&mut web, &["a", "b", "c"]).await;

    gone.deregister().await.unwrap();
    settle(&mut web, &["a", "b"]).await;
    c.kill().await;
    assert_eq!(web.len(), 2);
    assert!(!spread(&mut web, 300).await.contains_key("c"));

    // The same id at another address.
    let moved = Web::start("b2").await;
    registered.update(|record| record.endpoints([url(&moved).parse().unwrap()])).await.unwrap();
    settle(&mut web, &["a", "b2"]).await;

    // Drained by its weight.
    registered.update(|record| record.weight(0)).await.unwrap();
    settle(&mut web, &["a"]).await;
    assert_eq!(web.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_balance_calls_only_who_is_there_now() {
    let stage = Stage::set();
    let a = Web::start("a").await;
    let first = stage.join(&a).await;
    let mut web = balance(&stage);
    settle(&mut web, &["a"]).await;

    // Nobody polls the balance while hundreds come and go at a port where nobody listens any more.
    let dead = format!("http://{}", discovery_harness::refusing_address().unwrap());
    first.deregister().await.unwrap();
    for round in 0..200 {
        stage.register(&format!("dead-{round}"), &dead).await.deregister().await.unwrap();
    }
    let b = Web::start("b").await;
    let _b = stage.join(&b).await;
    let watch = stage.backend.watch("web");
    let is_alone = || watch.latest().is_some_and(|set| set.len() == 1 && set.get("b").is_some());
    until("b is alone", is_alone).await;
    assert_eq!(spread(&mut web, 10).await.into_iter().collect::<Vec<_>>(), [("b".to_owned(), 10)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w04_an_outage_removes_nobody_and_an_empty_set_makes_calls_wait() {
    let stage = Stage::set();
    let mut web = balance(&stage);
    assert!(web.ready().now_or_never().is_none(), "ready without anybody");

    let (a, mut b) = (Web::start("a").await, Web::start("b").await);
    let waiting = tokio::spawn(async move { web.ready().await.map(drop).map(|()| web) });
    let (_a, draining) = (stage.join(&a).await, stage.join(&b).await);
    let mut web = waiting.await.unwrap().unwrap();
    settle(&mut web, &["a", "b"]).await;

    // Whoever drains gets nothing new while another serves.
    draining.update(|record| record.state(State::Draining)).await.unwrap();
    settle(&mut web, &["a"]).await;
    b.kill().await;

    stage.link.cut();
    let watch = stage.backend.watch("web");
    until("the set is stale", || watch.freshness().is_stale()).await;
    assert_eq!(spread(&mut web, 100).await.into_keys().collect::<Vec<_>>(), ["a"]);
}
