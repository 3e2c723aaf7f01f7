//! Who gets the credentials of requests that are redirected.

use discovery_core::Instance;
use discovery_reqwest::{Client, TLS_NAME};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::stage::{Heads, Stage, header, ok, raw, redirect, settings};

/// A server whose `/a` leads to the same place's `/b`, written with the `Host` that it was called by, or else with this origin.
async fn itself(origin: Option<&'static str>) -> (std::net::SocketAddr, Heads) {
    raw(move |head| {
        let host = header(head, "host").unwrap();
        let origin = origin.map_or_else(|| format!("http://{host}"), str::to_owned);
        if head.starts_with("GET /a ") { redirect(&format!("{origin}/b")) } else { ok() }
    })
    .await
}

async fn get(client: &Client, url: &str) {
    let response = client.get(url).bearer_auth("secret").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok", "{url}");
}

fn knows(heads: &Heads) -> Vec<bool> {
    heads.lock().unwrap().iter().map(|head| head.contains("secret")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_gets_neither_a_request_nor_default_credentials() {
    let stage = Stage::set();
    let (stranger, seen) = raw(|_| ok()).await;
    let location = format!("http://{stranger}/x");
    let (orders, _) = raw(move |_| redirect(&location)).await;
    let _orders = stage.register("orders", &format!("http://{orders}")).await;
    let with_token = || {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, "Bearer secret".parse().unwrap())]);
        settings().default_headers(headers)
    };
    let client = stage.builder().with_settings(with_token).build().unwrap();
    let response = client.get("http://orders/").send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.url().as_str()), (307, "http://orders/"));
    assert_eq!(response.headers()["location"], format!("http://{stranger}/x"));
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_stay_with_the_service_whatever_scheme_it_is_called_by() {
    let stage = Stage::set();
    for origin in ["http://orders", "discovery://orders"] {
        let (orders, seen) = itself(Some(origin)).await;
        let registration = stage.register("orders", &format!("http://{orders}")).await;
        for url in ["discovery://orders/a", "http://orders/a"] {
            get(&stage.client(), url).await;
        }
        assert_eq!(knows(&seen), [true; 4], "{origin}");
        registration.deregister().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_that_was_sent_as_host_is_the_service() {
    let stage = Stage::set();
    let (orders, seen) = itself(None).await;
    let instance = Instance::builder("orders").endpoint(&format!("http://{orders}"));
    let instance = instance.metadata(TLS_NAME, "orders.discovery-kit.invalid").build().unwrap();
    let _orders = stage.backend.register(instance, Default::default()).await.unwrap();
    let dotted = Instance::builder("com.example.Orders").endpoint(&format!("http://{orders}")).build().unwrap();
    let _dotted = stage.backend.register(dotted, Default::default()).await.unwrap();
    // A name that cannot be a host is called by its address.
    let odd = Instance::builder("pay/v2").endpoint(&format!("http://{orders}")).build().unwrap();
    let _odd = stage.backend.register(odd, Default::default()).await.unwrap();
    let client = stage.client();
    for url in ["http://orders/a", "discovery://com.example.Orders/a", "discovery://pay%2Fv2/a"] {
        get(&client, url).await;
    }
    assert_eq!(knows(&seen), [true; 6]);
}
