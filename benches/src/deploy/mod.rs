//! What a deployment does to callers: servers that are restarted, killed and stopped, a registry that is away, a client that is idle, and a service that nobody serves.
//!
//! Servers are processes of their own, the registry is a real one, and every failed call is counted and shown.

mod away;
mod empty;
mod idle;
mod losses;
mod rolling;
mod server;

use std::sync::Arc;
use std::time::Duration;

use discovery_core::Backend;
use discovery_core::picker::PowerOfTwo;
use discovery_tonic::{Channel, ChannelBuilder};

use crate::Result;
use crate::store::{Store, each};
pub(crate) use server::{Server, serve};

/// Calls a second, half of them unary and half with a stream of answers.
const RATE: u32 = 2_000;
const SERVERS: usize = 5;
/// How long anything may take to be seen by everybody.
const SOON: Duration = Duration::from_secs(30);
pub(crate) const SERVICE: &str = "greeter";

/// One registry, and the servers that are registered there.
struct Scene {
    store: Store,
    url: String,
    backend: Arc<dyn Backend>,
    servers: Vec<Server>,
}

/// Plays everything on the registries that are named, or on all whose servers are there.
pub(crate) async fn run(stores: &[&str]) -> Result<()> {
    each(stores, play).await
}

async fn play(store: Store) -> Result<()> {
    let url = format!("{}://{}/deploy?ttl=3s&backoff=2s&probe=1s&timeout=1s", store.name(), store.address());
    let backend = crate::connect(&url)?;
    let mut scene = Scene { store, url, backend, servers: Vec::new() };
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
        println!("{} {value} {unit}", self.figure(figure));
    }

    fn figure(&self, figure: &str) -> String {
        format!("deploy.{}.{figure}", self.store.name())
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
