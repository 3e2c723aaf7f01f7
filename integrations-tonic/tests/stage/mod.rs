//! What the tests play on: a registry in memory, servers that can be killed, and facts that are waited for.

mod hello;
mod node;
mod plain;
pub(crate) mod raw;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use discovery_core::memory::{MemoryLink, MemoryStore};
use discovery_core::picker::RoundRobin;
use discovery_core::{Backend, Instance, Member, Policy, Registration};
use discovery_tonic::{Channel, ChannelBuilder};
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Status;

pub(crate) use discovery_harness::{SOON, stays, until};
pub(crate) use hello::Hello;
pub(crate) use node::{Greeting, Node};
pub(crate) use plain::Plain;

use discovery_greeter::GreeterClient;
use discovery_greeter::HelloRequest;

pub(crate) struct Stage {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) link: MemoryLink,
}

impl Stage {
    pub(crate) fn set() -> Self {
        let (backend, link) = MemoryStore::new().open("", Policy::default()).unwrap();
        Self { backend, link }
    }

    /// Registers an address under an id.
    pub(crate) async fn register(&self, id: &str, endpoint: &str) -> Registration {
        let instance = Instance::builder("greeter").id(id).endpoint(endpoint).build().unwrap();
        self.backend.register(instance, Default::default()).await.unwrap()
    }

    pub(crate) async fn join(&self, node: &Node) -> Registration {
        self.register(node.name(), &format!("grpc://{}", node.address())).await
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel_builder().build()
    }

    pub(crate) fn channel_builder(&self) -> ChannelBuilder {
        let builder = Channel::builder(self.backend.watch("greeter"), RoundRobin::new());
        builder.with_backoff_cap(Duration::from_millis(100))
    }
}

pub(crate) fn request(name: &str) -> HelloRequest {
    HelloRequest { name: name.to_owned(), count: 0 }
}

/// Calls once, and answers which server did the work.
pub(crate) async fn hello(channel: &Channel) -> Result<String, Status> {
    let reply = GreeterClient::new(channel.clone()).say_hello(request("you")).await?;
    Ok(reply.into_inner().server)
}

/// Begins a call: all that it does before it has to wait is done when this returns.
pub(crate) async fn begin(channel: &Channel) -> JoinHandle<Result<String, Status>> {
    let channel = channel.clone();
    let mut call = Box::pin(async move { hello(&channel).await });
    assert!(call.as_mut().now_or_never().is_none(), "the call ended at once");
    tokio::spawn(call)
}

/// How a call that was begun ends.
pub(crate) async fn end(call: JoinHandle<Result<String, Status>>) -> Result<String, Status> {
    within("the call's end", call).await.unwrap()
}

/// What takes longer than [`SOON`] hangs.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"))
}

/// Waits until so many instances are connected.
pub(crate) async fn connected(channel: &Channel, count: usize) {
    until(&format!("{count} connected"), || channel.connected() == count).await;
}

/// Calls until each of these servers, and nobody else, has answered in a row.
pub(crate) async fn settle(channel: &Channel, names: &[&str]) {
    discovery_harness::settle(names, names.len(), async || hello(channel).await).await;
}

/// Calls that often, one after the other, and counts who answered; every call has to succeed.
pub(crate) async fn spread(channel: &Channel, calls: usize) -> BTreeMap<String, usize> {
    discovery_harness::spread(calls, async || hello(channel).await).await
}

pub(crate) fn member(channel: &Channel, id: &str) -> Member {
    channel.balancer().members().into_iter().find(|member| member.instance().id() == id).unwrap()
}

/// How many calls are in flight.
pub(crate) fn pending(channel: &Channel) -> usize {
    channel.balancer().members().iter().map(|member| member.pending() as usize).sum()
}
