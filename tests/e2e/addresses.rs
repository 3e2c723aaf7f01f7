//! What was registered is an address that others can call as it is.

use std::time::Duration;

use discovery_kit::{Instance, RegisterOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::registry::Registry;

/// Answers every request, a connection each.
async fn answer(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 1024];
        if let Ok(1..) = stream.read(&mut request).await {
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
            stream.write_all(answer.as_bytes()).await.expect("a client that waits for its answer");
        }
    }
}

/// F08: an IPv6 address is found on every registry as it was registered, and its URI is one that reqwest calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f08_an_ipv6_instance_is_called_by_reqwest_from_every_registry() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(answer(listener));
    for registry in Registry::all().await {
        let (backend, _cable) = registry.handle("f08").await;
        let instance = Instance::builder("web").endpoint(&format!("http://[::1]:{port}")).build().unwrap();
        let _held = backend.register(instance, RegisterOptions::default()).await.unwrap();
        let set = backend.snapshot("web", Duration::from_secs(5)).await.unwrap();
        let endpoint = set.instances().iter().next().unwrap().endpoints()[0].clone();
        assert_eq!((endpoint.host(), endpoint.port()), ("::1", port), "{}", registry.name);
        assert_eq!(endpoint.to_string(), format!("http://[::1]:{port}"), "{}", registry.name);
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap();
        let body = client.get(endpoint.to_string()).send().await.unwrap().text().await.unwrap();
        assert_eq!(body, "hello", "{}", registry.name);
    }
    server.abort();
}
