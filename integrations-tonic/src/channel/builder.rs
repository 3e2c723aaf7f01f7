//! How a channel is made, and how it behaves.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::{
    Balancer, BalancerOptions, Error, ErrorKind, PickerFactory, Result, StalePolicy, TlsFiles, Watch, WhenEmpty,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue};

use super::fleet::{Fleet, follow};
use super::key::KeySource;
use super::retries::Retries;
use super::{Channel, Inner};

/// What calls and transports go by.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) when_empty: WhenEmpty,
    /// At least one for each instance.
    pub(super) connections: usize,
    pub(super) tls: Option<TlsFiles>,
    pub(super) key: KeySource,
    pub(super) retries: Option<Arc<Retries>>,
    pub(super) connect_timeout: Duration,
    pub(super) backoff_cap: Duration,
    pub(super) keepalive_interval: Duration,
    pub(super) keepalive_timeout: Duration,
    pub(super) user_agent: HeaderValue,
}

const USER_AGENT: &str = concat!("discovery-tonic/", env!("CARGO_PKG_VERSION"));

/// Makes a [`Channel`].
#[must_use = "a builder does nothing until `build`"]
pub struct ChannelBuilder {
    watch: Watch,
    picker: Box<dyn PickerFactory>,
    options: Options,
    balancer: BalancerOptions,
}

impl ChannelBuilder {
    pub(super) fn new(watch: Watch, picker: impl PickerFactory) -> Self {
        let options = Options {
            when_empty: WhenEmpty::default(),
            connections: 1,
            tls: None,
            key: KeySource::None,
            retries: None,
            connect_timeout: Duration::from_secs(3),
            backoff_cap: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            user_agent: HeaderValue::from_static(USER_AGENT),
        };
        Self { watch, picker: Box::new(picker), options, balancer: BalancerOptions::default() }
    }

    /// Sets what a call does while no instance can take it; by default it waits up to its deadline (`grpc-timeout`), or 10 s. With
    /// [`WhenEmpty::FailFast`] it fails as soon as every instance was dialled in vain; a first dial is waited for.
    pub fn with_when_empty(mut self, when_empty: WhenEmpty) -> Self {
        self.options.when_empty = when_empty;
        self
    }

    /// Sets how many connections are kept to each instance, at least one; 1 by default. One carries as many calls at once as the server allows
    /// (tonic's own: without a limit), and some ten thousand a second; more are for servers that limit streams, or for very large
    /// answers, which share a connection's bandwidth.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.options.connections = connections.max(1);
        self
    }

    /// Calls every instance with TLS, whatever scheme it registered: a record cannot turn it off. The files are read for each connection, so
    /// that a rotated certificate is used.
    ///
    /// The server's certificate must have the name that the files are given; else the one in the instance's metadata under `tls.name`; else
    /// the service's. That name is also the `:authority` of the calls.
    #[cfg(feature = "tls")]
    pub fn with_tls(mut self, files: TlsFiles) -> Self {
        self.options.tls = Some(files);
        self
    }

    /// Takes the key of requests that belong together from this header, for pickers that keep them together, such as
    /// [`ConsistentHash`](discovery_core::picker::ConsistentHash). A [`HashKey`](crate::HashKey) among a request's extensions counts before it.
    pub fn with_hash_header(mut self, name: HeaderName) -> Self {
        self.options.key = KeySource::Header(name);
        self
    }

    /// Finds that key in another way, from all that is before the request's body.
    pub fn with_hash_key(mut self, find: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.options.key = KeySource::With(Arc::new(find));
        self
    }

    /// Sends failed calls again; by default only what was never sent goes to another instance.
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.options.retries = Some(Arc::new(retries));
        self
    }

    /// Sets all that the balancer goes by: filters, zones, slow start, outlier ejection, and others.
    pub fn with_balancer(mut self, options: BalancerOptions) -> Self {
        self.balancer = options;
        self
    }

    /// Sets how long a dial may take until the server has greeted with its HTTP/2 settings; 3 s by default.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// Sets the longest wait between two dials of one instance; 10 s by default.
    pub fn with_backoff_cap(mut self, cap: Duration) -> Self {
        self.options.backoff_cap = cap;
        self
    }

    /// Sets after how much silence of the server a connection is probed, also while it is idle, and how long the answer may take; 10 s and 5 s
    /// by default. A connection without an answer is given up, with the calls on it. An interval of zero sends no pings.
    ///
    /// Servers that allow few pings, as those of Go and Java do by default (one in five minutes, none while idle), close a connection that is
    /// pinged too often. Its next one is then pinged half as often, which is tried out over some connections; better let the servers allow
    /// it: `keepalive.EnforcementPolicy{MinTime: 5s, PermitWithoutStream: true}` in Go, `permitKeepAliveTime` and
    /// `permitKeepAliveWithoutCalls(true)` in Java.
    pub fn with_keepalive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.options.keepalive_interval = interval;
        self.options.keepalive_timeout = timeout;
        self
    }

    /// Sets whether a stale set is picked from. It is one of the [balancer's](Self::with_balancer) options.
    pub fn with_stale(mut self, stale: StalePolicy) -> Self {
        self.balancer = self.balancer.with_stale(stale);
        self
    }

    /// Puts the caller's product in front of this crate's in the `user-agent` header.
    ///
    /// # Errors
    /// `InvalidInput` if it cannot stand in a header.
    pub fn with_user_agent(mut self, product: &str) -> Result<Self> {
        self.options.user_agent = HeaderValue::from_str(&format!("{product} {USER_AGENT}")).map_err(|error| {
            let what = format!("user agent {product:?}");
            Error::new(ErrorKind::InvalidInput, "set", what, "it cannot stand in a header").with_source(error)
        })?;
        Ok(self)
    }

    /// Makes the channel and starts dialling as soon as its watch has a set.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, as everything that starts tasks.
    pub fn build(self) -> Channel {
        let balancer = Balancer::with_options(self.watch.clone(), self.picker, self.balancer);
        let fleet = Arc::new(Fleet::new(balancer, self.options));
        let task = tokio::spawn(follow(fleet.clone(), self.watch)).abort_handle();
        Channel { inner: Arc::new(Inner { fleet, task }) }
    }
}
