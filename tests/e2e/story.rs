//! One story, told over every registry without a line that differs.

use std::time::Duration;

use discovery_greeter::Named;
use discovery_harness::{eventually, stays};
use discovery_kit::picker::RoundRobin;
use discovery_kit::{Backend, RegistrationState, State};
use discovery_tonic::{Channel, RunningServer, ServiceServer};
use futures_util::future::join_all;

use crate::calls::{Load, SETTLE, connected, count, known, shares};
use crate::examples::assert_quickstart;
use crate::node::run;
use crate::registry::{Cable, Registry};

const TTL: Duration = Duration::from_secs(3);

/// A greeter with a handle of its own, as in a process of its own.
struct Server {
    running: RunningServer,
    registry: std::sync::Arc<dyn Backend>,
    cable: Cable,
}

impl Server {
    async fn start(registry: &Registry, name: &str, listen: &str) -> Self {
        let (handle, cable) = registry.handle("story").await;
        let server = ServiceServer::bind(listen).await.unwrap().with_grace(Duration::from_millis(500));
        let running = server.start(handle.clone(), "greeter", Named::routes(name)).await.unwrap();
        Self { running, registry: handle, cable }
    }

    /// Ends it without a word: nobody deregisters it.
    async fn kill(self) {
        self.cable.cut().await;
        drop((self.running, self.registry));
    }
}

/// Three register and are called by turns; one is killed and restarted; the registry goes away and returns; one drains.
async fn tell(registry: Registry) {
    let any = "127.0.0.1:0";
    let one = Server::start(&registry, "one", any).await;
    let two = Server::start(&registry, "two", any).await;
    let _three = Server::start(&registry, "three", any).await;
    let (reader, _cable) = registry.handle("story").await;
    let watch = reader.watch("greeter");
    let channel = Channel::builder(watch.clone(), RoundRobin::new()).with_backoff_cap(Duration::from_secs(1)).build();
    let all = shares(&[("one", 100), ("two", 100), ("three", 100)]);
    connected(&channel, 3).await;
    assert_eq!(count(&channel, 300).await, all, "{}", registry.name);

    // Killed: its calls go to the others at once, and its record ends with its TTL.
    let address = two.running.local_addr().to_string();
    two.kill().await;
    connected(&channel, 2).await;
    assert_eq!(count(&channel, 300).await, shares(&[("one", 150), ("three", 150)]), "{}", registry.name);
    known(&watch, TTL + Duration::from_secs(1), 2).await;

    // Restarted where it was.
    let _two = Server::start(&registry, "two", &address).await;
    known(&watch, SETTLE, 3).await;
    connected(&channel, 3).await;
    assert_eq!(count(&channel, 300).await, all, "{}", registry.name);

    // The registry is away for two TTLs, and comes back: nobody is lost, no call fails.
    let load = Load::start(&channel);
    registry.leave();
    eventually(SETTLE, "the set to be stale", async || watch.freshness().is_stale()).await;
    let three = || watch.latest().is_some_and(|set| set.len() == 3);
    stays(TTL * 2, &format!("{} shows three", registry.name), three).await;
    registry.come_back().await;
    eventually(SETTLE, "the set to be live", async || watch.freshness().is_live()).await;
    known(&watch, SETTLE, 3).await;
    // Its handle reconnects on its own, later than the reader's perhaps, and a drain marks nothing on a registry that it cannot reach.
    eventually(SETTLE, "the registration to hold again", async || match one.running.registration().state() {
        RegistrationState::Registered => Ok(()),
        other => Err(format!("{}: {other:?}", registry.name)),
    })
    .await;

    // Drained: it is seen to, finishes what it has, and goes.
    let (drained, ()) = tokio::join!(one.running.shutdown(), async {
        eventually(SETTLE, "the draining state", async || {
            let set = watch.latest()?;
            set.instances().iter().any(|instance| instance.state() == State::Draining).then_some(())
        })
        .await;
    });
    drained.unwrap();
    known(&watch, SETTLE, 2).await;
    let (succeeded, failures) = load.end().await;
    assert!(failures.is_empty() && succeeded > 100, "{}: {succeeded} succeeded, {failures:?}", registry.name);
    connected(&channel, 2).await;
    assert_eq!(count(&channel, 300).await, shares(&[("two", 150), ("three", 150)]), "{}", registry.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_story_on_every_registry() {
    join_all(Registry::all().await.into_iter().map(tell)).await;
}

/// On every registry the same, with the servers in its own process and in one each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_quickstart_does_the_same_on_every_registry() {
    for registry in Registry::real().await {
        assert_quickstart(&run("quickstart", &["--registry", &registry.url("one")]).await);
        assert_quickstart(&run("quickstart", &["--registry", &registry.url("each"), "--processes"]).await);
    }
}
