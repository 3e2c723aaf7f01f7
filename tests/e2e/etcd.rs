//! Real processes on a real etcd: what teams build by hand today, behaviour by behaviour.

use std::sync::Arc;
use std::time::Duration;

use discovery_greeter::{GreeterClient, HelloRequest};
use discovery_harness::{Etcd, eventually, stays};
use discovery_kit::picker::RoundRobin;
use discovery_kit::{Backend, Watch};
use discovery_tonic::Channel;
use tokio::time::Instant;
use tonic::{Code, Request};

use crate::calls::{Load, SETTLE, connected, count, known, shares};
use crate::node::Node;

const TTL: Duration = Duration::from_secs(3);

struct Stage {
    etcd: Etcd,
    url: String,
    registry: Arc<dyn Backend>,
}

impl Stage {
    async fn start() -> Option<Self> {
        if !discovery_harness::available("etcd").expect("etcd, which CI requires") {
            return None;
        }
        let etcd = Etcd::start().await.unwrap();
        let url = format!("etcd://{}?ttl=3s&backoff=2s&probe=1s&timeout=1s", etcd.address());
        let registry = discovery_kit::connect(&url).unwrap();
        Some(Self { etcd, url, registry })
    }

    /// A greeter in a process of its own, on a free port or on the one it had.
    async fn server(&self, name: &str, listen: &str) -> (Node, String) {
        let mut node = Node::start("register", &[&self.url, name, listen]);
        let address = node.line().await;
        (node, address)
    }

    /// A client, and the watch that it goes by.
    fn client(&self) -> (Channel, Watch) {
        let watch = self.registry.watch("greeter");
        (Channel::builder(watch.clone(), RoundRobin::new()).with_backoff_cap(Duration::from_secs(1)).build(), watch)
    }
}

/// The six behaviours that the grpc-lb article reports, in its order, on one etcd, with three servers and one client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_six_behaviours_of_grpc_lb() {
    let Some(stage) = Stage::start().await else { return };
    let (one, _) = stage.server("one", "127.0.0.1:0").await;
    let (two, address) = stage.server("two", "127.0.0.1:0").await;
    let (three, _) = stage.server("three", "127.0.0.1:0").await;
    let (channel, watch) = stage.client();

    // 1. Every server gets the same number of requests.
    connected(&channel, 3).await;
    assert_eq!(count(&channel, 300).await, shares(&[("one", 100), ("two", 100), ("three", 100)]));

    // 2. One is stopped: its requests go to the other two, and none fails, during the stop nor after it.
    let load = Load::start(&channel);
    assert!(two.terminate().await.success());
    known(&watch, SETTLE, 2).await;
    connected(&channel, 2).await;
    let (succeeded, failures) = load.end().await;
    assert!(failures.is_empty() && succeeded > 100, "{succeeded} succeeded, failed: {failures:?}");
    assert_eq!(count(&channel, 300).await, shares(&[("one", 150), ("three", 150)]));

    // 3. It is started again: the shares are equal again.
    let (two, _) = stage.server("two", &address).await;
    connected(&channel, 3).await;
    assert_eq!(count(&channel, 300).await, shares(&[("one", 100), ("two", 100), ("three", 100)]));

    // 4. etcd is stopped: calls go on, no instance is lost, nothing comes or goes, for longer than the TTL.
    stage.etcd.stop().await.unwrap();
    let load = Load::start(&channel);
    eventually(SETTLE, "the set to be stale", async || watch.freshness().is_stale()).await;
    stays(TTL * 2, "three instances", || watch.latest().is_some_and(|set| set.len() == 3)).await;
    let (succeeded, failures) = load.end().await;
    assert!(failures.is_empty() && succeeded > 100, "{succeeded} succeeded, failed: {failures:?}");
    assert_eq!(count(&channel, 300).await, shares(&[("one", 100), ("two", 100), ("three", 100)]));

    // 5. etcd is back: joins and leaves are seen again, without a restart of anything.
    stage.etcd.start_again().await.unwrap();
    eventually(SETTLE, "the set to be live", async || watch.freshness().is_live()).await;
    let (four, _) = stage.server("four", "127.0.0.1:0").await;
    connected(&channel, 4).await;
    assert!(four.terminate().await.success());
    known(&watch, SETTLE, 3).await;

    // 6. All are stopped: a call waits, and succeeds once one is back within its deadline.
    for server in [one, two, three] {
        assert!(server.terminate().await.success());
    }
    known(&watch, SETTLE, 0).await;
    let mut client = GreeterClient::new(channel.clone());
    let mut request = Request::new(HelloRequest { name: "you".into(), count: 0 });
    request.set_timeout(Duration::from_secs(20));
    let mut patient = client.clone();
    let waiting = tokio::spawn(async move { patient.say_hello(request).await });
    let (_back, _) = stage.server("two", &address).await;
    assert_eq!(waiting.await.unwrap().unwrap().into_inner().server, "two");
    _back.kill().await;
    known(&watch, SETTLE, 0).await;
    let mut request = Request::new(HelloRequest { name: "you".into(), count: 0 });
    request.set_timeout(Duration::from_secs(1));
    let begun = Instant::now();
    let status = client.say_hello(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("no instance is registered"), "{status:?}");
    assert!(begun.elapsed() < Duration::from_millis(1_050), "{:?}", begun.elapsed());
}

/// go-zero's promise: who is killed is out of every watcher's set within TTL + 1 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r03_a_killed_process_is_out_of_every_set_within_its_ttl() {
    let Some(stage) = Stage::start().await else { return };
    let (killed, _) = stage.server("one", "127.0.0.1:0").await;
    let (_living, _) = stage.server("two", "127.0.0.1:0").await;
    let others: Vec<_> = (0..3).map(|_| discovery_kit::connect(&stage.url).unwrap()).collect();
    let watches: Vec<_> = others.iter().map(|registry| registry.watch("greeter")).collect();
    for watch in &watches {
        known(watch, SETTLE, 2).await;
    }
    killed.kill().await;
    let end = Instant::now() + TTL + Duration::from_secs(1);
    for watch in &watches {
        known(watch, end.saturating_duration_since(Instant::now()), 1).await;
    }
}

/// go-zero's promise: the cached set survives an etcd that is away for a minute, and every call succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w04_a_minute_without_etcd_fails_no_call() {
    let Some(stage) = Stage::start().await else { return };
    let (_one, _) = stage.server("one", "127.0.0.1:0").await;
    let (_two, _) = stage.server("two", "127.0.0.1:0").await;
    let (channel, watch) = stage.client();
    connected(&channel, 2).await;
    let load = Load::start(&channel);
    stage.etcd.kill().unwrap();
    let minute = Duration::from_secs(60);
    stays(minute, "two instances", || watch.latest().is_some_and(|set| set.len() == 2)).await;
    stage.etcd.start_again().await.unwrap();
    eventually(SETTLE, "the set to be live", async || watch.freshness().is_live()).await;
    known(&watch, SETTLE, 2).await;
    let (succeeded, failures) = load.end().await;
    assert!(failures.is_empty() && succeeded > 1_000, "{succeeded} succeeded, failed: {failures:?}");
}

/// A client that is restarted while etcd is down calls whom the one before it knew, and is live again once etcd is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w13_a_client_that_starts_without_etcd_calls_from_the_disk() {
    let Some(mut stage) = Stage::start().await else { return };
    let (_one, _) = stage.server("one", "127.0.0.1:0").await;
    let (_two, _) = stage.server("two", "127.0.0.1:0").await;
    let folder = tempfile::tempdir().unwrap();
    let sets = folder.path().join("sets");
    stage.url = format!("{}&cache={}", stage.url, sets.display());
    stage.registry = discovery_kit::connect(&stage.url).unwrap();
    let (channel, watch) = stage.client();
    known(&watch, SETTLE, 2).await;
    // A set is written at most once a second, so the first one may have both of them or not.
    eventually(SETTLE, "both on the disk", async || {
        let files = std::fs::read_dir(&sets).into_iter().flatten().flatten();
        let mut texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        if texts.any(|text| text.matches("grpc://").count() == 2) { Ok(()) } else { Err("not yet") }
    })
    .await;
    stage.etcd.kill().unwrap();
    drop((channel, watch));
    stage.registry = discovery_kit::connect(&stage.url).unwrap();

    let (channel, watch) = stage.client();
    // Nothing is waited for: the first call goes to somebody from the disk.
    assert_eq!(count(&channel, 100).await.values().sum::<u32>(), 100);
    connected(&channel, 2).await;
    assert_eq!(count(&channel, 100).await, shares(&[("one", 50), ("two", 50)]));
    let set = watch.latest().unwrap();
    assert!(set.is_from_disk() && set.freshness().is_stale(), "{:?}", set.freshness());

    let load = Load::start(&channel);
    stage.etcd.start_again().await.unwrap();
    eventually(SETTLE, "the set to be live", async || watch.freshness().is_live()).await;
    let (succeeded, failures) = load.end().await;
    assert!(failures.is_empty() && succeeded > 0, "{succeeded} succeeded, failed: {failures:?}");
    assert_eq!((watch.latest().unwrap().len(), watch.latest().unwrap().is_from_disk()), (2, false));
}

/// What is registered is an address that others can reach, however the server listens: never a wildcard, never port 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f19_what_is_registered_can_be_called() {
    let Some(stage) = Stage::start().await else { return };
    for (listen, advertise, host) in [
        ("0.0.0.0:0", None, "127.0.0.1"),
        ("[::]:0", None, "127.0.0.1"),
        ("127.0.0.1:0", None, "127.0.0.1"),
        ("[::1]:0", None, "::1"),
        ("0.0.0.0:0", Some("localhost"), "localhost"),
    ] {
        let environment: Vec<_> = advertise.map(|host| ("DISCOVERY_ADVERTISE", host)).into_iter().collect();
        let mut node = Node::start_with("register", &[&stage.url, "one", listen], &environment);
        let bound: std::net::SocketAddr = node.line().await.parse().unwrap();
        let (channel, watch) = stage.client();
        known(&watch, SETTLE, 1).await;
        let set = watch.latest().unwrap();
        let endpoint = set.instances().iter().next().unwrap().endpoints()[0].clone();
        assert_eq!((endpoint.host(), endpoint.port()), (host, bound.port()), "listening on {listen}");
        connected(&channel, 1).await;
        assert_eq!(count(&channel, 3).await, shares(&[("one", 3)]), "listening on {listen}");
        assert!(node.terminate().await.success());
        known(&watch, SETTLE, 0).await;
    }
}

/// Every signal that orchestrators and shells use to end a process drains and deregisters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r09_every_signal_drains_and_deregisters() {
    let Some(stage) = Stage::start().await else { return };
    let (_, watch) = stage.client();
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        let (node, _) = stage.server("one", "127.0.0.1:0").await;
        known(&watch, SETTLE, 1).await;
        let ended = tokio::spawn(node.signal(signal));
        eventually(SETTLE, "the instance to drain", async || {
            let set = watch.latest()?;
            let state = set.instances().iter().next()?.state();
            (state == discovery_kit::State::Draining).then_some(())
        })
        .await;
        assert!(ended.await.unwrap().success(), "SIG{signal}");
        // It deregistered by itself: the TTL alone would have taken longer.
        known(&watch, Duration::from_millis(500), 0).await;
    }
}
