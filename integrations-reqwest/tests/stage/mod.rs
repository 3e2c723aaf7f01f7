//! What the tests play on: a registry in memory, servers that can be killed, and facts that are waited for.

mod certificates;
mod node;
mod raw;
mod site;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use discovery_core::memory::{MemoryLink, MemoryStore};
use discovery_core::picker::RoundRobin;
use discovery_core::{Backend, Instance, Member, Outcome, Policy, Registration};
use discovery_reqwest::{Client, ClientBuilder};

pub(crate) use certificates::Authority;
pub(crate) use discovery_harness::until;
pub(crate) use node::{Node, Web, start_tls};
pub(crate) use raw::{Heads, head, header, ok, raw, redirect, unavailable};

pub(crate) struct Stage {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) link: MemoryLink,
}

impl Stage {
    pub(crate) fn set() -> Self {
        let (backend, link) = MemoryStore::new().open("", Policy::default()).unwrap();
        Self { backend, link }
    }

    /// Registers an address of "orders" under an id.
    pub(crate) async fn register(&self, id: &str, endpoint: &str) -> Registration {
        let instance = Instance::builder("orders").id(id).endpoint(endpoint).build().unwrap();
        self.backend.register(instance, Default::default()).await.unwrap()
    }

    pub(crate) async fn join(&self, node: &Node) -> Registration {
        self.register(node.name(), &format!("http://{}", node.address())).await
    }

    /// A client that takes turns, without retries, so that every attempt is seen.
    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder(self.backend.clone())
            .with_settings(settings)
            .with_picker(|_| RoundRobin::new())
            .with_retries(None)
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().build().unwrap()
    }
}

/// Nobody's proxy.
pub(crate) fn settings() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(3))
}

/// An address that refuses connections.
pub(crate) fn dead() -> String {
    format!("http://{}", discovery_harness::refusing_address().unwrap())
}

/// Calls once, and answers which server did the work.
pub(crate) async fn hello(client: &Client) -> reqwest_middleware::Result<String> {
    let response = client.get("http://orders/name").send().await?;
    assert_eq!(response.status(), 200);
    Ok(response.text().await?)
}

/// Calls that often, one after the other, and counts who answered; every call has to succeed.
pub(crate) async fn spread(client: &Client, calls: usize) -> BTreeMap<String, usize> {
    discovery_harness::spread(calls, async || hello(client).await).await
}

/// Calls until each of these servers, and nobody else, has answered in a row.
pub(crate) async fn settle(client: &Client, names: &[&str]) {
    discovery_harness::settle(names, names.len(), async || hello(client).await).await;
}

pub(crate) fn members(client: &Client) -> Vec<Member> {
    client.middleware().balancer("http://orders").unwrap().unwrap().members()
}

pub(crate) fn member(client: &Client, id: &str) -> Member {
    members(client).into_iter().find(|member| member.instance().id() == id).unwrap()
}

/// Counts of success, failure, no connection, cancellation, and what is in flight.
pub(crate) fn counts(client: &Client, id: &str) -> [u64; 5] {
    let member = member(client, id);
    let all = [Outcome::Success, Outcome::Failure, Outcome::Unreachable, Outcome::Cancelled];
    let [success, failure, unreachable, cancelled] = all.map(|outcome| member.count(outcome));
    [success, failure, unreachable, cancelled, u64::from(member.pending())]
}
