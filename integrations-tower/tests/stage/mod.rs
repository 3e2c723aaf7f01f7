//! What the tests play on: a registry in memory, and HTTP servers that say who they are and can be killed.

mod web;

use std::collections::BTreeMap;
use std::sync::Arc;

use discovery_core::memory::{MemoryLink, MemoryStore};
use discovery_core::picker::RoundRobin;
use discovery_core::{Backend, Balancer, Instance, Member, Outcome, Policy, Registration};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::{BoxError, Service, ServiceExt};

pub(crate) use discovery_harness::{SOON, eventually, until};
pub(crate) use web::Web;

pub(crate) type Http<C = HttpConnector> = Client<C, Empty<Bytes>>;

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
        let instance = Instance::builder("web").id(id).endpoint(endpoint).build().unwrap();
        self.backend.register(instance, Default::default()).await.unwrap()
    }

    pub(crate) async fn join(&self, web: &Web) -> Registration {
        self.register(web.name(), &url(web)).await
    }

    pub(crate) fn balancer(&self) -> Balancer {
        Balancer::new(self.backend.watch("web"), RoundRobin::new())
    }
}

pub(crate) fn url(web: &Web) -> String {
    format!("http://{}", web.address())
}

/// A client that makes a connection for each request, so that each shows who is there.
pub(crate) fn http() -> Http {
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(HttpConnector::new())
}

/// Asks whoever answers at a URL for its name.
pub(crate) async fn ask<C>(client: &Http<C>, url: &str) -> Result<String, BoxError>
where
    C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    let answer = client.get(url.parse()?).await?;
    Ok(String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec())?)
}

/// Calls that often, one after the other, and counts who answered; every call has to succeed.
pub(crate) async fn spread<S>(service: &mut S, calls: usize) -> BTreeMap<String, usize>
where
    S: Service<(), Response = String, Error = BoxError>,
{
    discovery_harness::spread(calls, async || service.ready().await?.call(()).await).await
}

/// Calls until these servers, and nobody else, answer ten calls each of them.
pub(crate) async fn settle<S>(service: &mut S, names: &[&str])
where
    S: Service<(), Response = String, Error = BoxError>,
{
    discovery_harness::settle(names, 10 * names.len(), async || service.ready().await?.call(()).await).await;
}

pub(crate) fn member(balancer: &Balancer, id: &str) -> Member {
    balancer.members().into_iter().find(|member| member.instance().id() == id).unwrap()
}

/// Successes, failures, requests without a connection, and cancelled ones of an instance.
pub(crate) fn outcomes(balancer: &Balancer, id: &str) -> [u64; 4] {
    let member = member(balancer, id);
    [Outcome::Success, Outcome::Failure, Outcome::Unreachable, Outcome::Cancelled].map(|outcome| member.count(outcome))
}

/// Waits until a balancer knows that many instances.
pub(crate) async fn known(balancer: &Balancer, count: usize) {
    until(&format!("{count} instances are known"), || balancer.members().len() == count).await;
}
