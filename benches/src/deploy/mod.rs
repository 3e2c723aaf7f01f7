//! What a deployment does to callers: servers that are restarted, killed and stopped, a registry that is away, a client that is idle, and a service that nobody serves.
//!
//! Servers are processes of their own, the registry is a real one, and every failed call is counted and shown.

mod away;
mod empty;
mod idle;
mod load;
mod losses;
mod rolling;
mod server;

use std::sync::Arc;
use std::time::Duration;

use discovery_core::Backend;
use discovery_core::picker::PowerOfTwo;
use discovery_harness::{Etcd, Redis, ZooKeeper};
use discovery_tonic::{Channel, ChannelBuilder};

use crate::Result;
pub(crate) use server::{Server, serve};

/// Calls a second, half of them unary and half with a stream of answers.
const RATE: u32 = 2_000;
const SERVERS: usize = 5;
/// How long anything may take to be seen by everybody.
const SOON: Duration = Duration::from_secs(30);
const SERVICE: &str = "greeter";

/// A registry with its server.
enum Store {
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
    Redis(Redis),
}

impl Store {
    fn address(&self) -> String {
        match self {
            Self::Etcd(server) => server.address(),
            Self::ZooKeeper(server) => server.address(),
            Self::Redis(server) => server.address(),
        }
    }

    fn kill(&self) -> Result<()> {
        Ok(match self {
            Self::Etcd(server) => server.kill(),
            Self::ZooKeeper(server) => server.kill(),
            Self::Redis(server) => server.kill(),
        }?)
    }

    async fn start_again(&self) -> Result<()> {
        Ok(match self {
            Self::Etcd(server) => server.start_again().await,
            Self::ZooKeeper(server) => server.start_again().await,
            Self::Redis(server) => server.start_again().await,
        }?)
    }
}

/// One registry, and the servers that are registered there.
struct Scene {
    name: &'static str,
    store: Store,
    url: String,
    backend: Arc<dyn Backend>,
    servers: Vec<Server>,
}

/// Plays everything on the registries that are named, or on all whose servers are there.
pub(crate) async fn run(stores: &[&str]) -> Result<()> {
    let wanted = |store: &str| stores.is_empty() || stores.contains(&store);
    if wanted("etcd") && discovery_harness::available("etcd")? {
        play("etcd", Store::Etcd(Etcd::start().await?)).await?;
    }
    if wanted("zookeeper") && ZooKeeper::available()? {
        play("zookeeper", Store::ZooKeeper(ZooKeeper::start().await?)).await?;
    }
    if wanted("redis") && discovery_harness::available("redis-server")? {
        play("redis", Store::Redis(Redis::start().await?)).await?;
    }
    Ok(())
}

async fn play(name: &'static str, store: Store) -> Result<()> {
    let url = format!("{name}://{}/deploy?ttl=3s&backoff=2s&probe=1s&timeout=1s", store.address());
    let backend = crate::connect(&url)?;
    let mut scene = Scene { name, store, url, backend, servers: Vec::new() };
    for number in 0..SERVERS {
        scene.servers.push(Server::start(&format!("s{number}"), &scene.url)?);
    }
    rolling::run(&mut scene).await?;
    losses::kill(&mut scene).await?;
    losses::stop(&mut scene).await?;
    empty::run(&scene).await?;
    idle::run(&scene).await?;
    away::run(&mut scene).await
}

impl Scene {
    fn channel(&self) -> ChannelBuilder {
        Channel::builder(self.backend.watch(SERVICE), PowerOfTwo)
    }

    fn print(&self, figure: &str, value: impl std::fmt::Display, unit: &str) {
        println!("deploy.{}.{figure} {value} {unit}", self.name);
    }

    /// Waits until so many servers get their share.
    async fn settled(&self, channel: &Channel, servers: usize) -> Result<()> {
        let all = async {
            while [channel.connected(), channel.sharing()] != [servers; 2] {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(SOON, all).await;
        waited.map_err(|_| format!("{} of {servers} servers are connected: {channel:?}", channel.connected()).into())
    }
}
