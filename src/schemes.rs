//! The table of schemes: which backend opens which URL. It is a value; nothing is global.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use discovery_core::multi::Multi;
use discovery_core::{Backend, Error, ErrorKind, RegistryUrl, Result, fixed, memory};

use crate::sides::{SCHEME, Sides};

/// Opens a registry of one scheme.
pub type Connector = Arc<dyn Fn(&RegistryUrl) -> Result<Arc<dyn Backend>> + Send + Sync>;

/// The schemes that this crate knows, and the feature that compiles each in.
const FEATURES: &[(&str, &str)] = &[
    ("etcd", "etcd"),
    ("etcds", "tls"),
    ("redis", "redis"),
    ("redis+sentinel", "redis"),
    ("redis+cluster", "redis"),
    ("rediss", "tls"),
    ("rediss+sentinel", "tls"),
    ("rediss+cluster", "tls"),
    ("zookeeper", "zookeeper"),
    ("zk", "zookeeper"),
    ("zookeepers", "tls"),
    ("zks", "tls"),
];

/// Opens the registry at a URL such as `etcd://user:password@h1:2379,h2:2379/prefix?ttl=10s`, `memory:` or `static:///a:1,b:2`.
///
/// Several registries as one ([`multi`](discovery_core::multi)) are written as their whole URLs with spaces between, the most preferred first:
/// `multi: zookeeper://h1:2181/services?ttl=10s etcd://user:password@h2:2379`. Before them may stand the mode and its options:
/// `multi:failover?away=30s zookeeper://h1:2181 etcd://h2:2379`. Modes are `union` (the default), `prefer` and `failover`, options
/// `patience` and `away`.
///
/// Connecting happens in the background; a registry that is away is no error. Needs a running Tokio runtime.
///
/// # Errors
/// `InvalidInput` for a malformed URL, an unknown option (naming the nearest one) or a value out of bounds; `Unsupported` for a scheme
/// that is not compiled in, naming those that are and the missing feature.
pub fn connect(url: &str) -> Result<Arc<dyn Backend>> {
    Schemes::default().connect(url)
}

/// A table of schemes. Add one's own with [`with`](Self::with).
#[derive(Clone)]
pub struct Schemes {
    connectors: BTreeMap<String, Connector>,
}

impl Default for Schemes {
    /// Everything that is compiled in.
    fn default() -> Self {
        let schemes = Self { connectors: BTreeMap::new() };
        let schemes = schemes.with("memory", memory::connect).with("static", fixed::connect);
        #[cfg(feature = "etcd")]
        let schemes = schemes.with("etcd", discovery_etcd::connect);
        #[cfg(all(feature = "etcd", feature = "tls"))]
        let schemes = schemes.with("etcds", discovery_etcd::connect);
        #[cfg(feature = "redis")]
        let schemes = ["redis", "redis+sentinel", "redis+cluster"]
            .into_iter()
            .fold(schemes, |schemes, scheme| schemes.with(scheme, discovery_redis::connect));
        #[cfg(all(feature = "redis", feature = "tls"))]
        let schemes = ["rediss", "rediss+sentinel", "rediss+cluster"]
            .into_iter()
            .fold(schemes, |schemes, scheme| schemes.with(scheme, discovery_redis::connect));
        #[cfg(feature = "zookeeper")]
        let schemes = schemes.with("zookeeper", discovery_zookeeper::connect).with("zk", discovery_zookeeper::connect);
        #[cfg(all(feature = "zookeeper", feature = "tls"))]
        let schemes =
            schemes.with("zookeepers", discovery_zookeeper::connect).with("zks", discovery_zookeeper::connect);
        schemes
    }
}

impl Schemes {
    /// Adds a scheme, or replaces the connector of one.
    #[must_use]
    pub fn with(
        mut self,
        scheme: &str,
        connector: impl Fn(&RegistryUrl) -> Result<Arc<dyn Backend>> + Send + Sync + 'static,
    ) -> Self {
        self.connectors.insert(scheme.to_ascii_lowercase(), Arc::new(connector));
        self
    }

    /// Opens a registry, as [`connect`] does, with the schemes of this table.
    ///
    /// # Errors
    /// As [`connect`].
    pub fn connect(&self, url: &str) -> Result<Arc<dyn Backend>> {
        if let Some(sides) = Sides::parse(url)? {
            let opened = sides.urls.iter().map(|url| self.connect(url)).collect::<Result<Vec<_>>>()?;
            return Ok(Multi::new(opened, sides.options)?);
        }
        let url: RegistryUrl = url.parse()?;
        match self.connectors.get(url.scheme()) {
            Some(connector) => connector(&url),
            None => Err(self.unknown(&url)),
        }
    }

    fn unknown(&self, url: &RegistryUrl) -> Error {
        let scheme = url.scheme();
        let known: Vec<_> = self.connectors.keys().map(String::as_str).chain([SCHEME]).collect();
        let advice = match FEATURES.iter().find(|(name, _)| *name == scheme) {
            Some((_, feature)) => format!("build discovery-kit with the feature {feature:?}"),
            None => "see Schemes::with for one's own".to_owned(),
        };
        Error::new(
            ErrorKind::Unsupported,
            "open",
            format!("registry URL {:?}", url.to_string()),
            format!("the scheme {scheme:?} is not compiled in; compiled in are {}; {advice}", known.join(", ")),
        )
    }
}

impl fmt::Debug for Schemes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.connectors.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_scheme_lists_those_compiled_in() {
        let error = connect("consul://user:hunter2@h:1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = format!("{error} {error:?}");
        assert!(["memory", "static"].iter().all(|it| text.contains(it)) && !text.contains("hunter2"), "{text}");
        #[cfg(not(feature = "redis"))]
        assert!(connect("redis+cluster://h:1").unwrap_err().to_string().contains("the feature \"redis\""));
        #[cfg(not(feature = "zookeeper"))]
        assert!(connect("zk://h:1").unwrap_err().to_string().contains("the feature \"zookeeper\""));
        #[cfg(not(feature = "etcd"))]
        assert!(connect("etcd://h:1").unwrap_err().to_string().contains("the feature \"etcd\""));
    }

    #[tokio::test]
    async fn a_third_party_adds_its_scheme() {
        let schemes = Schemes::default().with("mine", |_| memory::connect(&"memory:".parse()?));
        assert!(schemes.connect("MINE://anything").is_ok());
        assert!(connect("mine://anything").is_err(), "nothing is global");
    }

    #[tokio::test]
    async fn r12_what_cannot_work_is_refused_by_name() {
        for (url, said) in [
            ("memory:?tll=3s", "did you mean \"ttl\"?"),
            ("memory:?ttl=0s", "TTL of 0ns"),
            ("memory:///a//b", "prefix"),
            ("static:", "names no host"),
            ("memory", "no scheme"),
        ] {
            let error = connect(url).unwrap_err();
            assert!(error.to_string().contains(said), "{url}: {error}");
        }
        #[cfg(feature = "etcd")]
        for (url, said) in [
            ("etcd://", "names no host"),
            ("etcd://h:1?ttl=1s", "TTL of 1s"),
            ("etcd://0.0.0.0:1", "wildcard"),
            ("etcd://user@h:1", "without a password"),
            ("etcd://:password@h:1", "without a user"),
        ] {
            let error = connect(url).unwrap_err();
            assert!(error.to_string().contains(said), "{url}: {error}");
        }
        #[cfg(feature = "redis")]
        for (url, said) in [
            ("redis://", "names no host"),
            ("redis://h:1?ttl=999ms", "TTL of 999ms"),
            ("redis://h:1?dp=1", "did you mean \"db\"?"),
            ("redis://user@h:1", "without a password"),
            ("redis+sentinel://h:1", "names no master"),
            ("redis+cluster://h:1?db=1", "\"db\""),
        ] {
            let error = connect(url).unwrap_err();
            assert!(error.to_string().contains(said), "{url}: {error}");
        }
        #[cfg(feature = "zookeeper")]
        for (url, said) in [
            ("zk://", "names no host"),
            ("zk://h:1?ttl=500ms", "TTL of 500ms"),
            ("zookeeper://0.0.0.0:1", "wildcard"),
            ("zookeeper://user@h:1", "without a password"),
            ("zookeeper://h:1/%F0%9F%90%82", "cannot hold"),
        ] {
            let error = connect(url).unwrap_err();
            assert!(error.to_string().contains(said), "{url}: {error}");
        }
    }
}
