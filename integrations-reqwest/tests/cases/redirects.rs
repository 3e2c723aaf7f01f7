//! Redirects of services.

use discovery_core::Instance;
use discovery_reqwest::{CallError, Called};

use crate::stage::{Node, Stage, counts, ok, raw, redirect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_are_followed_by_name_and_picked_for_anew() {
    let stage = Stage::set();
    let (a, pay) = (Node::start("a").await, Node::start("pay").await);
    let _a = stage.join(&a).await;
    let payments = Instance::builder("payments").endpoint(&format!("http://{}", pay.address())).build().unwrap();
    let _pay = stage.backend.register(payments, Default::default()).await.unwrap();
    let client = stage.client();
    let response = client.get("http://orders/redirect/302?/name").send().await.unwrap();
    assert_eq!(response.url().as_str(), "http://orders/name");
    assert_eq!(response.text().await.unwrap(), "a");
    let response = client.get("http://orders/redirect/307?http://payments/name").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "pay");
    assert_eq!(counts(&client, "a"), [3, 0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn method_body_and_credentials_are_kept_as_the_status_says() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let endpoint = format!("http://{}", a.address());
    let payments = Instance::builder("payments").endpoint(&endpoint).build().unwrap();
    let _a = stage.join(&a).await;
    let _b = stage.backend.register(payments, Default::default()).await.unwrap();
    let client = stage.client();
    for (status, method) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
        for (to, credentials) in [("/method", true), ("http://payments/method", false)] {
            let url = format!("http://orders/redirect/{status}?{to}");
            let response = client.post(&url).bearer_auth("secret").body("x").send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), format!("{method}  {credentials}"), "{url}");
        }
    }
    let response = client.post("http://orders/redirect/308?/echo").body("kept").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "kept");
    // A stream can be sent once.
    let stream = || reqwest::Body::wrap(http_body_util::Full::new(hyper::body::Bytes::from("x")));
    let response = client.post("http://orders/redirect/307?/echo").body(stream()).send().await.unwrap();
    assert_eq!(response.status(), 307);
    let response = client.post("http://orders/redirect/303?/method").body(stream()).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "GET  false");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_end_and_can_be_left_to_the_caller() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let client = stage.builder().with_redirects(3).build().unwrap();
    let response = client.get("http://orders/redirect/302?/name").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "a");
    let error = client.get("http://orders/redirect/302").send().await.unwrap_err();
    assert!(CallError::of(&error).unwrap().to_string().contains("more than 3 redirects"), "{error}");
    assert_eq!(counts(&client, "a"), [6, 0, 0, 0, 0]);
    let client = stage.builder().with_redirects(0).build().unwrap();
    let response = client.get("http://orders/redirect/302?/name").send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers()["location"].to_str().unwrap()), (302, "/name"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_to_no_service_is_the_callers() {
    let stage = Stage::set();
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let _registered = [stage.join(&a).await, stage.join(&b).await];
    let client = stage.client();
    let dead = crate::stage::dead();
    let response = client.post(format!("http://orders/redirect/303?{dead}/x")).body("once").send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (303, &http::HeaderValue::try_from(format!("{dead}/x")).unwrap())
    );
    drop(response);
    assert_eq!(a.requests() + b.requests(), 1);
    let [a, b] = [counts(&client, "a"), counts(&client, "b")];
    assert_eq!((a[0] + b[0], a[1..] == [0; 4], b[1..] == [0; 4]), (1, true, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_in_utf8_is_followed() {
    let stage = Stage::set();
    let (a, seen) = raw(|head| if head.starts_with("GET /a ") { redirect("/\u{fc}ber") } else { ok() }).await;
    let _a = stage.register("a", &format!("http://{a}")).await;
    assert_eq!(stage.client().get("http://orders/a").send().await.unwrap().status(), 200);
    assert!(seen.lock().unwrap()[1].starts_with("GET /%C3%BCber "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn called_is_not_left_behind_by_an_earlier_request() {
    let stage = Stage::set();
    let (stranger, _) = raw(|_| ok()).await;
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let client: reqwest_middleware::ClientWithMiddleware = stage.client().into();
    let mut extensions = http::Extensions::new();
    for (url, is_called) in [("http://orders/name".to_owned(), true), (format!("http://{stranger}/"), false)] {
        let request = client.get(url).build().unwrap();
        client.execute_with_extensions(request, &mut extensions).await.unwrap();
        assert_eq!(extensions.get::<Called>().is_some(), is_called);
    }
}
