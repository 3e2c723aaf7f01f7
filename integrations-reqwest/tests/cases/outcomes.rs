//! What the balancer learns of each attempt.

use discovery_reqwest::{Called, Client, Retries};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::stage::{Node, Stage, counts, settings, settle, until};

async fn get(client: &Client, path: &str) -> reqwest::Response {
    client.get(format!("http://orders{path}")).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_the_outcome_is_reported_once_at_the_end_of_the_body() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let client = stage.client();
    settle(&client, &["a"]).await;
    assert_eq!(counts(&client, "a"), [1, 0, 0, 0, 0]);
    // A body that is read; an answer of the application; one that has no body.
    get(&client, "/status/404").await.text().await.unwrap();
    assert_eq!(counts(&client, "a"), [2, 0, 0, 0, 0]);
    drop(client.head("http://orders/name").send().await.unwrap());
    assert_eq!(counts(&client, "a"), [3, 0, 0, 0, 0]);
    // In flight until the end of the body.
    let response = get(&client, "/stream").await;
    assert_eq!(counts(&client, "a"), [3, 0, 0, 0, 1]);
    a.open_gate();
    assert_eq!(response.text().await.unwrap(), "beginend");
    assert_eq!(counts(&client, "a"), [4, 0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_errors_of_the_instance_are_failures_and_drops_are_cancellations() {
    let stage = Stage::set();
    let mut a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let client = stage.client();
    // The status of a failure says it all, read or not.
    get(&client, "/status/500").await.text().await.unwrap();
    assert_eq!(counts(&client, "a"), [0, 1, 0, 0, 0]);
    get(&client, "/status/503").await.error_for_status().unwrap_err();
    assert_eq!(counts(&client, "a"), [0, 2, 0, 0, 0]);
    // A body that is dropped, and a call that is dropped before its answer.
    let mut response = get(&client, "/stream").await;
    assert_eq!(response.chunk().await.unwrap().unwrap(), "begin");
    drop(response);
    assert_eq!(counts(&client, "a"), [0, 2, 0, 1, 0]);
    let call = tokio::spawn({
        let client = client.clone();
        async move { get(&client, "/wait").await.status() }
    });
    until("the call is in flight", || counts(&client, "a")[4] == 1 && a.requests() == 4).await;
    call.abort();
    until("the call is dropped", || counts(&client, "a") == [0, 2, 0, 2, 0]).await;
    // A connection that breaks under a body, and under a call; the error names the address.
    let mut response = get(&client, "/stream").await;
    assert_eq!(response.chunk().await.unwrap().unwrap(), "begin");
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.post("http://orders/wait").send().await }
    });
    until("both are in flight", || counts(&client, "a")[4] == 2 && a.requests() == 6).await;
    a.kill().await;
    response.chunk().await.unwrap_err();
    let broken = call.await.unwrap().unwrap_err();
    assert!(broken.is_request(), "{broken}");
    assert_eq!(broken.url().unwrap().as_str(), format!("http://{}/wait", a.address()));
    assert_eq!(counts(&client, "a"), [0, 4, 0, 2, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_a_timeout_is_a_failure_and_reads_as_one() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let client = stage.client();
    let short = std::time::Duration::from_secs(1);
    let late = client.get("http://orders/wait").timeout(short).send().await.unwrap_err();
    assert!(late.is_timeout(), "{late}");
    let begun = client.get("http://orders/stream").timeout(short).send().await.unwrap();
    assert!(begun.text().await.unwrap_err().is_timeout());
    assert_eq!(counts(&client, "a"), [0, 2, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_many_at_once_leave_nothing_in_flight() {
    let stage = Stage::set();
    let nodes = [Node::start("a").await, Node::start("b").await];
    let _registered = [stage.join(&nodes[0]).await, stage.join(&nodes[1]).await];
    let client = stage.client();
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    let response = get(&client, "/name").await;
                    let id = response.extensions().get::<Called>().unwrap().instance().id().to_owned();
                    assert_eq!(response.text().await.unwrap(), id);
                }
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!([counts(&client, "a"), counts(&client, "b")], [[640, 0, 0, 0, 0]; 2]);
}

fn breaking() -> reqwest::Body {
    let parts = [Ok(Frame::data(Bytes::from("begin"))), Err(std::io::Error::other("the caller's own"))];
    reqwest::Body::wrap(StreamBody::new(futures_util::stream::iter(parts)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_what_the_caller_breaks_is_nobodys_failure() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let client = stage.client();
    let error = client.put("http://orders/echo").body(breaking()).send().await.unwrap_err();
    assert!(format!("{error:?}").contains("the caller's own"), "{error:?}");
    assert_eq!(counts(&client, "a"), [0; 5]);
}

/// Serves HTTP/2, and answers whatever comes once it has come whole.
async fn second_version() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let answer = async |request: hyper::Request<hyper::body::Incoming>| {
            request.into_body().collect().await?;
            Ok::<_, hyper::Error>(hyper::Response::new(Empty::<Bytes>::new()))
        };
        loop {
            let stream = TokioIo::new(listener.accept().await.unwrap().0);
            tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service_fn(answer)));
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_what_the_caller_breaks_over_http2_is_nobodys_failure() {
    let stage = Stage::set();
    let _a = stage.register("a", &format!("http://{}", second_version().await)).await;
    let client = stage.builder().with_settings(|| settings().http2_prior_knowledge());
    let client = client.with_retries(Retries::default()).build().unwrap();
    assert_eq!(get(&client, "/").await.version(), http::Version::HTTP_2);
    assert_eq!(counts(&client, "a"), [1, 0, 0, 0, 0]);
    client.put("http://orders/").body(breaking()).send().await.unwrap_err();
    assert_eq!(counts(&client, "a"), [1, 0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_a_version_that_cannot_be_spoken_is_nobodys_failure() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let client = stage.builder().with_retries(Retries::default()).build().unwrap();
    client.get("http://orders/name").version(http::Version::HTTP_2).send().await.unwrap_err();
    assert_eq!((counts(&client, "a"), a.requests()), ([0; 5], 0));
}
