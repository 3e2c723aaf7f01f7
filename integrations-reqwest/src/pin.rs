//! Resolves one logical name to an instance that is registered under a DNS name.

use std::sync::Arc;

use discovery_core::Endpoint;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

/// Resolves one logical name to the address of an endpoint, anew for each connection, and every other name (of a proxy) as the system does.
pub(crate) struct Pin {
    name: Arc<str>,
    endpoint: Endpoint,
}

impl Pin {
    pub(crate) fn new(name: &str, endpoint: &Endpoint) -> Self {
        Self { name: name.into(), endpoint: endpoint.clone() }
    }
}

impl Resolve for Pin {
    fn resolve(&self, name: Name) -> Resolving {
        let (host, port) = if *name.as_str() == *self.name {
            (self.endpoint.host().to_owned(), self.endpoint.port())
        } else {
            // Port 0 stands for the port of the URL.
            (name.as_str().to_owned(), 0)
        };
        Box::pin(system(host, port))
    }
}

/// Asks the system's resolver.
pub(crate) async fn system(host: String, port: u16) -> Result<Addrs, Box<dyn std::error::Error + Send + Sync>> {
    match lookup_host((&*host, port)).await {
        Ok(addresses) => Ok(Box::new(addresses.collect::<Vec<_>>().into_iter())),
        Err(error) => Err(format!("{host}: {error}").into()),
    }
}
