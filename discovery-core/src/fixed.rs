//! A fixed list of addresses behind the same traits: `static:///a:1,b:2`, what go-zero calls "direct".

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;

use crate::model::{Endpoint, Instance, KeySpace, encode};
use crate::store::{Capabilities, Digest, RawRecord, Scope, Sink, Store};
use crate::{Backend, Engine, Error, Policy, RegistryUrl, Result};

/// The scheme of an address that names none: plain TCP, so that any client takes it.
const DEFAULT_SCHEME: &str = "tcp";

/// Opens the fixed list of a URL such as `static:///10.0.0.5:9000,10.0.0.6:9000` or `static:///grpc://a:1,http://b:2`.
///
/// Every service name finds the same instances. Nothing can be registered.
///
/// # Errors
/// `InvalidInput` for an empty list, a malformed address, or an unknown option.
pub fn connect(url: &RegistryUrl) -> Result<Arc<dyn Backend>> {
    let mut options = url.options();
    let policy = Policy::from_url(&mut options)?;
    let scheme = options.text("scheme").unwrap_or_else(|| DEFAULT_SCHEME.to_owned());
    if policy.cache.is_some() {
        return Err(options.invalid("cache", "is of no use here; a fixed list is always there"));
    }
    options.finish()?;
    if url.user().is_some() {
        let subject = format!("registry URL {:?}", url.to_string());
        return Err(Error::invalid("use", subject, "a fixed list has no user; write static:///host:port,host:port"));
    }
    // `static://a:1,b:2` means the same as `static:///a:1,b:2`.
    let listed = match url.path().trim_matches('/') {
        "" => url.hosts(0)?.join(","),
        path => path.to_owned(),
    };
    let endpoints = listed
        .split(',')
        .map(|address| Endpoint::parse(address.trim(), Some(&scheme)))
        .collect::<Result<BTreeSet<_>>>()?;
    Ok(Engine::start(Arc::new(Fixed::new(endpoints)?), policy)?)
}

/// A store that holds the same addresses under every name.
struct Fixed {
    endpoints: BTreeSet<Endpoint>,
    space: KeySpace,
    capabilities: Capabilities,
}

impl Fixed {
    fn new(endpoints: BTreeSet<Endpoint>) -> Result<Self> {
        Ok(Self { endpoints, space: KeySpace::new("")?, capabilities: Capabilities::read_only("static") })
    }

    fn records(&self, service: &str) -> Vec<RawRecord> {
        let instances = self.endpoints.iter().filter_map(|endpoint| {
            let builder = Instance::builder(service).endpoints([endpoint.clone()]);
            builder.started_at(std::time::UNIX_EPOCH).build().ok()
        });
        instances
            .map(|instance| RawRecord { key: self.space.key(&instance.key()), revision: 1, value: encode(&instance) })
            .collect()
    }
}

#[async_trait]
impl Store for Fixed {
    fn address(&self) -> String {
        "static:".to_owned()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn parse_key<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        self.space.split(key)
    }

    async fn connect(&self) -> Result<()> {
        Ok(())
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }

    async fn follow(&self, scope: &Scope, sink: &dyn Sink) -> Error {
        let records = match scope {
            Scope::Service(service) => self.records(service),
            Scope::Names => Vec::new(),
        };
        sink.part(records);
        sink.full(1, Vec::new());
        std::future::pending().await
    }

    async fn digest(&self, scope: &Scope, _since: u64) -> Result<Digest> {
        let count = match scope {
            Scope::Service(service) => self.records(service).len(),
            Scope::Names => 0,
        };
        Ok(Digest { revision: 1, count, changed: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ErrorKind;

    #[tokio::test(start_paused = true)]
    async fn every_name_finds_the_listed_addresses() {
        let backend = connect(&"static:///a:1,grpc://[::1]:2".parse().unwrap()).unwrap();
        for service in ["orders", "pay"] {
            let snapshot = backend.snapshot(service, Duration::from_secs(1)).await.unwrap();
            let found: Vec<_> = snapshot.instances().iter().map(|i| i.endpoints()[0].to_string()).collect();
            assert_eq!(found, ["grpc://[::1]:2", "tcp://a:1"]);
        }
        let instance = Instance::builder("pay").endpoint("grpc://h:1").build().unwrap();
        let error = backend.register(instance, Default::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[tokio::test]
    async fn bad_lists_are_refused() {
        for url in [
            "static:",
            "static:///",
            "static:///a",
            "static:///a:1,,b:2",
            "static:///a:1?x=1",
            "static:///a:1?cache=x",
            "static:///0.0.0.0:1",
        ] {
            assert!(connect(&url.parse().unwrap()).is_err(), "{url}");
        }
        assert!(connect(&"static://a:1,b:2".parse().unwrap()).is_ok());
    }
}
