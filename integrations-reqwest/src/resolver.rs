//! The zero-change mode: a plain `reqwest::Client` resolves services by name.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use discovery_core::{Backend, DEFAULT_WAIT, Endpoint, Instance, Snapshot, State, Watch};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::hosts::ServiceHosts;
use crate::pin::system;
use crate::services::MOST_SERVICES;

/// How many addresses are answered at most: a client tries them one after the other, and each takes its time.
const MOST_ADDRESSES: usize = 16;
/// How long names are looked up while other addresses are known already. The client's connect timeout goes on meanwhile.
const LOOKUP: Duration = Duration::from_secs(1);

/// Resolves services by name for a plain `reqwest::Client`, given to its `dns_resolver`. Other names go to the system's resolver.
///
/// It can do what a resolver can do, and no more:
/// - The client asks only when it makes a connection. What is sent on an open connection goes where that leads, whoever has come or gone.
/// - Nobody picks. The addresses come in a random order; weights, zones, health and load play no part, but that the drained and the
///   draining come only if there are no others.
/// - Nobody hears how a request ended, so nobody is ejected. The client tries the next address only if a connection fails.
/// - An instance's port counts only if the URL has none. The URL's port is not seen, so that a short host name with a port is a service too;
///   say [which names](Self::with_hosts) are, with [`ServiceHosts::named`], if you call such hosts.
/// - A resolver does not see the URL's scheme. If instances have endpoints of several schemes, say [which](Self::with_schemes) it is for.
/// - Certificates are checked against the name in the URL; `tls.name` in the metadata is not read. `discovery://` is unknown to the client.
#[derive(Clone)]
pub struct ServiceResolver {
    backend: Arc<dyn Backend>,
    hosts: ServiceHosts,
    schemes: Arc<[String]>,
    wait: Duration,
    /// A watch for each service that was asked for. They are kept, and never more than 1,000.
    watches: Arc<Mutex<HashMap<String, Watch>>>,
}

impl ServiceResolver {
    /// Resolves names without a dot as services.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let schemes = ["http", "https", "tcp"].map(str::to_owned).into();
        Self { backend, hosts: ServiceHosts::default(), schemes, wait: DEFAULT_WAIT, watches: Arc::default() }
    }

    /// Sets which names are services.
    #[must_use]
    pub fn with_hosts(mut self, hosts: ServiceHosts) -> Self {
        self.hosts = hosts;
        self
    }

    /// Sets which endpoints are answered, the best first; by default `http`, `https` and `tcp`.
    #[must_use]
    pub fn with_schemes<S: Into<String>>(mut self, schemes: impl IntoIterator<Item = S>) -> Self {
        self.schemes = schemes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long a name is waited for while nobody is there; 10 s by default. The client's connect timeout counts too.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    fn watch(&self, service: &str) -> Watch {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watches.get(service) {
            return watch.clone();
        }
        if watches.len() >= MOST_SERVICES
            && let Some(any) = watches.keys().next().cloned()
        {
            watches.remove(&any);
        }
        let watch = self.backend.watch(service);
        watches.insert(service.to_owned(), watch.clone());
        watch
    }

    /// The endpoints of a set, in a random order, those who want requests alone if there are any.
    fn endpoints(&self, set: &Snapshot) -> Vec<Endpoint> {
        let schemes: Vec<_> = self.schemes.iter().map(|scheme| &**scheme).collect();
        let of = |wanted: &dyn Fn(&Instance) -> bool| -> Vec<Endpoint> {
            let instances = set.instances().iter().filter(|instance| wanted(instance));
            instances.filter_map(|instance| instance.endpoint(&schemes)).cloned().collect()
        };
        let mut endpoints = of(&|instance| instance.weight() > 0 && instance.state() == State::Serving);
        if endpoints.is_empty() {
            endpoints = of(&|_| true);
        }
        fastrand::shuffle(&mut endpoints);
        endpoints.truncate(MOST_ADDRESSES);
        endpoints
    }

    async fn find(self, service: String) -> Result<Addrs, Box<dyn std::error::Error + Send + Sync>> {
        discovery_core::check_name("service", &service)?;
        let mut watch = self.watch(&service);
        let end = Instant::now().checked_add(self.wait);
        let endpoints = loop {
            let endpoints = watch.latest().map(|set| self.endpoints(&set)).unwrap_or_default();
            if !endpoints.is_empty() {
                break endpoints;
            }
            let changed = match end {
                Some(end) => timeout_at(end, watch.changed()).await.ok().flatten(),
                None => watch.changed().await,
            };
            if changed.is_none() {
                let freshness = watch.freshness();
                let known = watch.latest().map_or(0, |set| set.len());
                let schemes = self.schemes.join(", ");
                let waited = self.wait;
                return Err(format!(
                    "cannot resolve service {service:?}: {known} known, none with a scheme of {schemes}; \
                     {freshness}; waited {waited:?}"
                )
                .into());
            }
        };
        addresses(&service, endpoints).await
    }
}

/// The addresses of endpoints in their order. Names are looked up at once; those that lead nowhere, or take long, hide nobody else.
async fn addresses(service: &str, endpoints: Vec<Endpoint>) -> Result<Addrs, Box<dyn std::error::Error + Send + Sync>> {
    let mut found: Vec<Vec<SocketAddr>> = vec![Vec::new(); endpoints.len()];
    let mut lookups = JoinSet::new();
    for (place, endpoint) in endpoints.into_iter().enumerate() {
        match (endpoint.host().parse::<IpAddr>(), found.get_mut(place)) {
            (Ok(ip), Some(found)) => found.push(SocketAddr::new(ip, endpoint.port())),
            _ => {
                lookups.spawn(async move { (place, system(endpoint.host().to_owned(), endpoint.port()).await) });
            }
        }
    }
    let (mut failed, hurried) = (Vec::new(), Instant::now() + LOOKUP);
    loop {
        let next = if found.iter().all(Vec::is_empty) {
            lookups.join_next().await
        } else {
            timeout_at(hurried, lookups.join_next()).await.ok().flatten()
        };
        match next {
            Some(Ok((place, Ok(addresses)))) => {
                if let Some(found) = found.get_mut(place) {
                    found.extend(addresses);
                }
            }
            Some(Ok((_, Err(error)))) => {
                tracing::warn!(service, %error, "the host of an instance is unknown");
                failed.push(error.to_string());
            }
            Some(Err(error)) => failed.push(error.to_string()),
            None => break,
        }
    }
    let addresses: Vec<_> = found.into_iter().flatten().collect();
    if addresses.is_empty() {
        return Err(format!("cannot resolve service {service:?}: no host of it is known: {}", failed.join("; ")).into());
    }
    Ok(Box::new(addresses.into_iter()))
}

impl Resolve for ServiceResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        if self.hosts.has(&name) { Box::pin(self.clone().find(name)) } else { Box::pin(system(name, 0)) }
    }
}

impl fmt::Debug for ServiceResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceResolver")
            .field("backend", &self.backend.address())
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
