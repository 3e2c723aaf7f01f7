//! What the user sets for every reqwest client.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::ErrorKind;
use discovery_reqwest::{CallError, Client, WhenEmpty};

use crate::stage::{Node, Stage, dead, settings, settle};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cookies_are_shared_by_all_instances() {
    let stage = Stage::set();
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let _registered = [stage.join(&a).await, stage.join(&b).await];
    let jar = Arc::new(reqwest::cookie::Jar::default());
    let client = stage.builder().with_settings(move || settings().cookie_provider(jar.clone())).build().unwrap();
    settle(&client, &["a", "b"]).await;
    let response = client.get("http://orders/sets/session").send().await.unwrap();
    let setter = response.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    for _ in 0..4 {
        let response = client.get("http://orders/cookie").send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), setter);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_and_headers_and_timeouts_are_as_they_are_set() {
    let stage = Stage::set();
    let (a, proxy) = (Node::start("a").await, Node::start("proxy").await);
    let _a = stage.join(&a).await;
    let through = reqwest::Proxy::http(format!("http://{}", proxy.address())).unwrap();
    let agent = "shop/1.2";
    let client = stage.builder().with_settings(move || settings().proxy(through.clone()).user_agent(agent));
    let response = client.build().unwrap().get("http://orders/host").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "orders", "the proxy hears the logical name");
    assert_eq!((a.requests(), proxy.requests()), (0, 1));

    let client = stage.builder().with_settings(|| settings().timeout(Duration::from_millis(200))).build().unwrap();
    assert!(client.get("http://orders/wait").send().await.unwrap_err().is_timeout());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_make_no_client_are_an_error() {
    let stage = Stage::set();
    let _a = stage.register("a", &dead()).await;
    let broken = || settings().user_agent("a\nb");
    let error = stage.builder().with_settings(broken).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let middleware = stage.builder().with_settings(broken).middleware();
    let client = reqwest_middleware::ClientBuilder::new(settings().build().unwrap()).with(middleware).build();
    let error = client.get("http://orders/").send().await.unwrap_err();
    assert_eq!(CallError::of(&error).unwrap().kind(), ErrorKind::InvalidInput, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_errors_nor_debug_show_a_secret() {
    let stage = Stage::set();
    let _a = stage.register("a", &dead()).await;
    let client: Client = stage.builder().with_when_empty(WhenEmpty::FailFast).build().unwrap();
    let url = "http://me:hunter2@orders/x?token=hunter2";
    let request = client.get(url).bearer_auth("hunter2");
    let error = request.send().await.unwrap_err();
    let shown = format!("{error} {error:?} {client:?} {:?}", CallError::of(&error).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
}
