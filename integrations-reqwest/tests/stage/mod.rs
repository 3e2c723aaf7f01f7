//! What the tests play on: a registry in memory, servers that can be killed, and facts that are waited for.

mod certificates;
mod node;
mod site;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use discovery_core::conformance::eventually;
use discovery_core::memory::{MemoryLink, MemoryStore};
use discovery_core::picker::RoundRobin;
use discovery_core::{Backend, Instance, Member, Outcome, Policy, Registration};
use discovery_reqwest::{Client, ClientBuilder};

pub(crate) use certificates::Authority;
pub(crate) use node::Node;

/// How long a fact may take to become true, on a machine that is busy with other things.
pub(crate) const SOON: Duration = Duration::from_secs(20);

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

/// An address that refuses connections, for as long as this process lives: a port that was merely free a moment ago may be a server of another
/// test by now.
pub(crate) fn dead() -> String {
    let port = discovery_harness::free_port().unwrap();
    let address = port.address();
    std::mem::forget(port);
    format!("http://{address}")
}

/// Calls once, and answers which server did the work.
pub(crate) async fn hello(client: &Client) -> reqwest_middleware::Result<String> {
    let response = client.get("http://orders/name").send().await?;
    assert_eq!(response.status(), 200);
    Ok(response.text().await?)
}

/// Calls that often, one after the other, and counts who answered; every call has to succeed.
pub(crate) async fn spread(client: &Client, calls: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..calls {
        *counts.entry(hello(client).await.unwrap()).or_insert(0) += 1;
    }
    counts
}

/// Calls until each of these servers, and nobody else, has answered in a row.
pub(crate) async fn settle(client: &Client, names: &[&str]) {
    eventually(SOON, &format!("answers of {names:?}"), async || {
        let counts = spread(client, names.len()).await;
        if counts.keys().eq(names) { Ok(()) } else { Err(counts) }
    })
    .await;
}

/// Waits until a fact holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(SOON, what, async || if holds() { Ok(()) } else { Err(()) }).await;
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
