//! What a request that was sent is told if nobody takes it the second time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use discovery_core::ErrorKind;
use discovery_reqwest::{CallError, Called, Retries, WhenEmpty};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::stage::{Stage, counts, head, raw, redirect, unavailable};

/// Answers one request, or breaks off, and then refuses connections.
async fn once(answer: Option<String>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(listener);
        head(&mut stream).await;
        if let Some(answer) = answer {
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_kept_where_nobody_takes_the_second_attempt() {
    for when_empty in [WhenEmpty::default(), WhenEmpty::FailFast] {
        let stage = Stage::set();
        let _a = stage.register("a", &format!("http://{}", once(Some(unavailable())).await)).await;
        let client = stage.builder().with_retries(Retries::default()).with_when_empty(when_empty).build().unwrap();
        let started = Instant::now();
        let response = client.get("http://orders/").send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.url().as_str()), (503, "http://orders/"));
        assert_eq!(response.extensions().get::<Called>().unwrap().instance().id(), "a");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert_eq!(response.text().await.unwrap(), "");
        assert_eq!(counts(&client, "a"), [0, 1, 1, 0, 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_kept_where_nobody_takes_the_second_attempt() {
    let stage = Stage::set();
    let _a = stage.register("a", &format!("http://{}", once(None).await)).await;
    let client = stage.builder().with_retries(Retries::default()).build().unwrap();
    let error = client.get("http://orders/").send().await.unwrap_err();
    assert!(error.is_request() && !error.is_connect() && CallError::of(&error).is_none(), "{error:?}");
    assert_eq!(counts(&client, "a"), [0, 1, 1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_error_after_a_redirect_says_that_the_request_was_sent() {
    let stage = Stage::set();
    let (orders, seen) = raw(|_| redirect("http://nobody/x")).await;
    let _orders = stage.register("orders", &format!("http://{orders}")).await;
    let client = stage.builder().with_when_empty(WhenEmpty::FailFast).build().unwrap();
    let error = client.post("http://orders/a").body("pay").send().await.unwrap_err();
    let error = CallError::of(&error).unwrap();
    assert_eq!((error.service(), error.kind(), error.was_sent()), ("nobody", ErrorKind::NoInstance, true), "{error}");
    assert_eq!(seen.lock().unwrap().len(), 1);
    let error = client.post("http://nobody/a").body("pay").send().await.unwrap_err();
    assert!(!CallError::of(&error).unwrap().was_sent(), "{error}");
}
