//! The gateway as a process, in front of greeters as processes, on a real etcd.

use std::collections::BTreeMap;
use std::time::Duration;

use discovery_harness::{Etcd, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::calls::SETTLE;
use crate::node::Node;

/// What the gateway waits at most, and some time to say so.
const PATIENCE: Duration = Duration::from_secs(2 + 1);

struct Gateway {
    url: String,
    client: reqwest::Client,
    _process: Node,
}

impl Gateway {
    async fn start(registry: &str) -> Self {
        let mut process = Node::start("gateway", &["--registry", registry, "--listen", "127.0.0.1:0"]);
        let url = format!("http://{}/hello", process.line().await);
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build().unwrap();
        Self { url, client, _process: process }
    }

    /// Posts a body, and returns the status with the answer, which is JSON in any case.
    async fn post(&self, body: impl Into<String>) -> (u16, Value) {
        let answer = self.client.post(&self.url).body(body.into()).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
    }

    async fn hello(&self) -> (u16, Value) {
        self.post(json!({ "name": "you" }).to_string()).await
    }

    /// Says hello that often, and counts who answered; everybody has to.
    async fn count(&self, calls: u32) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for _ in 0..calls {
            let (status, answer) = self.hello().await;
            assert_eq!(status, 200, "{answer}");
            let server = answer["server"].as_str().unwrap();
            assert_eq!(answer["message"], format!("Hello you, this is {server}"));
            *counts.entry(server.to_owned()).or_insert(0) += 1;
        }
        counts
    }

    /// Calls until these, and nobody else, answer equally often.
    async fn settle(&self, names: &[&str]) {
        let expected = names.iter().map(|name| ((*name).to_owned(), 10)).collect::<BTreeMap<_, _>>();
        eventually(SETTLE, &format!("{expected:?}"), async || match self.count(10 * names.len() as u32).await {
            now if now == expected => Ok(()),
            now => Err(format!("{now:?}")),
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_says_hello_through_whoever_is_there() {
    if !discovery_harness::available("etcd").expect("etcd, which CI requires") {
        return;
    }
    let etcd = Etcd::start().await.unwrap();
    let url = format!("etcd://{}?ttl=3s&backoff=2s&probe=1s&timeout=1s", etcd.address());
    let server = async |name| {
        let mut node = Node::start("register", &[&url, name]);
        node.line().await;
        node
    };
    let gateway = Gateway::start(&url).await;

    // Nobody is there: it says so, after it has waited.
    let begun = Instant::now();
    let (status, answer) = gateway.hello().await;
    assert_eq!(status, 503, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("no instance is registered"), "{answer}");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());

    // Three share the calls.
    let (one, two, three) = (server("one").await, server("two").await, server("three").await);
    gateway.settle(&["one", "two", "three"]).await;

    // Whoever asks for something else is told.
    for (body, expected, why) in [
        ("{", 400, "not JSON"),
        ("", 400, "not JSON"),
        ("{\"name\": 7}", 422, "name"),
        ("{}", 422, "name"),
        ("[]", 422, "name"),
    ] {
        let (status, answer) = gateway.post(body).await;
        assert_eq!(status, expected, "{body}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(why), "{body}: {answer}");
    }
    let answer = gateway.client.get(&gateway.url).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 405);

    // One is killed: no request fails, from that moment on.
    two.kill().await;
    let counts = gateway.count(300).await;
    assert!(!counts.contains_key("two"), "{counts:?}");
    gateway.settle(&["one", "three"]).await;

    // All are stopped: a request waits, and is answered when one is back in time; otherwise it fails with the reason.
    assert!(one.terminate().await.success() && three.terminate().await.success());
    let back = async { server("one").await };
    let ((status, answer), one) = tokio::join!(gateway.hello(), back);
    assert_eq!((status, &answer["server"]), (200, &json!("one")), "{answer}");
    one.kill().await;
    let (status, answer) = gateway.hello().await;
    assert_eq!(status, 503, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("\"greeter\""), "{answer}");
}
