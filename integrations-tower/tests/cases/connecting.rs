//! hyper-util's legacy client by service name.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use discovery_tower::Connector;
use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;
use tower::util::BoxService;
use tower::{BoxError, ServiceExt, service_fn};

use crate::stage::{Http, SOON, Stage, Web, ask, eventually, known, outcomes, settle, spread, until, url};

/// A client that knows the service `web`, and keeps that many connections.
fn client(connector: Connector<HttpConnector>, kept: usize) -> Http<Connector<HttpConnector>> {
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(kept).build(connector)
}

fn calls(client: &Http<Connector<HttpConnector>>, url: &str) -> BoxService<(), String, BoxError> {
    let (client, url) = (client.clone(), url.to_owned());
    BoxService::new(service_fn(move |()| {
        let (client, url) = (client.clone(), url.clone());
        async move { ask(&client, &url).await }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_called_by_its_name_and_everybody_else_as_before() {
    let stage = Stage::set();
    let (a, mut b, other) = (Web::start("a").await, Web::start("b").await, Web::start("other").await);
    let (_a, b_registered) = (stage.join(&a).await, stage.join(&b).await);
    let balancer = stage.balancer();
    known(&balancer, 2).await;
    let client = client(Connector::new(HttpConnector::new()).with_service("web", balancer.clone()), 0);
    let mut web = calls(&client, "http://web/");
    let counts = spread(&mut web, 100).await;
    assert_eq!((counts["a"], counts["b"]), (50, 50));
    assert_eq!(outcomes(&balancer, "a"), [50, 0, 0, 0]);

    // The request is as it was, and a port in it is not the instance's.
    assert_eq!(ask(&client, "http://web/host").await.unwrap(), "web");
    assert_eq!(ask(&client, "http://web:1/host").await.unwrap(), "web:1");
    assert_eq!(ask(&client, &url(&other)).await.unwrap(), "other");

    // Killed and still registered: dialled once, in vain, and no call fails.
    b.kill().await;
    assert_eq!(spread(&mut web, 100).await.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 100)]);
    assert_eq!(outcomes(&balancer, "b")[2], 1);
    b_registered.deregister().await.unwrap();
    let c = Web::start("c").await;
    let _c = stage.join(&c).await;
    settle(&mut web, &["a", "c"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_connections_end_with_their_instance_and_the_next_lead_elsewhere() {
    let stage = Stage::set();
    let mut a = Web::start("a").await;
    let _a = stage.join(&a).await;
    let balancer = stage.balancer();
    known(&balancer, 1).await;
    let client = client(Connector::new(HttpConnector::new()).with_service("web", balancer.clone()), usize::MAX);
    let mut web = calls(&client, "http://web/");
    assert_eq!(spread(&mut web, 10).await["a"], 10);
    let b = Web::start("b").await;
    let _b = stage.join(&b).await;
    known(&balancer, 2).await;
    a.kill().await;
    // The client hears of the end of its connections a moment later than the server's task is gone.
    eventually(SOON, "an answer of b", async || match ask(&client, "http://web/").await {
        Ok(name) if name == "b" => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert_eq!(spread(&mut web, 100).await["b"], 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_cannot_be_made_says_what_was_tried() {
    let stage = Stage::set();
    let balancer = stage.balancer();
    let connector = Connector::new(HttpConnector::new()).with_service("web", balancer.clone());
    let connector = connector.with_wait(Duration::ZERO);
    let client = client(connector, 0);
    let why = async || {
        let error = client.get("http://web/".parse().unwrap()).await.unwrap_err();
        std::error::Error::source(&error).unwrap().to_string()
    };
    until("there is a first set", || balancer.freshness().is_live()).await;
    let text = why().await;
    assert!(text.contains("no instance is registered") && text.contains("\"web\""), "{text}");

    let gone = format!("http://{}", discovery_harness::refusing_address().unwrap());
    let _gone = stage.register("gone", &gone).await;
    let _secure = stage.register("secure", "grpcs://127.0.0.1:1").await;
    known(&balancer, 2).await;
    let text = why().await;
    assert!(text.contains("gone: ") && text.contains("http://web/"), "{text}");
    assert!(text.contains("secure: ") && text.contains("no endpoint with the scheme http or tcp"), "{text}");
}

#[tokio::test]
async fn hosts_are_compared_without_regard_to_case() {
    let stage = Stage::set();
    let _a = stage.register("a", "http://10.0.0.5:9000").await;
    let inner = service_fn(async |uri: Uri| Ok::<_, BoxError>(uri.to_string()));
    let connector = Connector::new(inner).with_service("Web", stage.balancer());
    for uri in ["http://WEB/x", "http://web/x"] {
        assert_eq!(connector.clone().oneshot(uri.parse().unwrap()).await.unwrap(), "http://10.0.0.5:9000/x");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_one_for_all_dials_and_the_reason_of_those_is_told() {
    let stage = Stage::set();
    let a = Arc::new(Mutex::new(Some(stage.register("a", "http://10.0.0.5:9000").await)));
    let balancer = stage.balancer();
    known(&balancer, 1).await;
    let watched = balancer.clone();
    // It takes most of the wait to be dialled, and leaves meanwhile.
    let inner = service_fn(move |_: Uri| {
        let (a, watched, mut selections) = (a.lock().unwrap().take(), watched.clone(), watched.selections());
        async move {
            tokio::time::sleep(Duration::from_millis(700)).await;
            a.unwrap().deregister().await.unwrap();
            while !watched.members().is_empty() {
                selections.changed().await;
            }
            Err::<(), BoxError>("refused".into())
        }
    });
    let connector = Connector::new(inner).with_service("web", balancer).with_wait(Duration::from_secs(1));
    let started = Instant::now();
    let error = connector.oneshot("http://web/x".parse().unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("a: refused") && error.contains("no instance is registered"), "{error}");
    assert!(started.elapsed() < Duration::from_millis(1_100), "{:?}", started.elapsed());
}
