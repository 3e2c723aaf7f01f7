//! How a client is made, and how it behaves.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::picker::PowerOfTwo;
use discovery_core::{Backend, BalancerOptions, Error, ErrorKind, Filter, PickerFactory, Result, WhenEmpty};
use http::{HeaderName, Method};
use reqwest::Request;

use crate::client::Client;
use crate::hosts::{Destination, ServiceHosts};
use crate::key::{HashKey, KeySource};
use crate::middleware::DiscoveryMiddleware;
use crate::retries::Retries;
use crate::services::Services;

/// How long a dial may take if the caller sets nothing: a host that is gone answers nothing, and reqwest alone would wait for minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a service is kept open that nobody calls.
const IDLE: Duration = Duration::from_secs(600);
/// How many redirects are followed, as many as reqwest does.
const REDIRECTS: usize = 10;

type Settings = dyn Fn() -> reqwest::ClientBuilder + Send + Sync;
type Pickers = dyn Fn(&str) -> Box<dyn PickerFactory> + Send + Sync;

/// What requests go by.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) settings: Arc<Settings>,
    pub(crate) picker: Arc<Pickers>,
    balancer: BalancerOptions,
    pub(crate) hosts: ServiceHosts,
    pub(crate) when_empty: WhenEmpty,
    pub(crate) retries: Option<Retries>,
    pub(crate) key: KeySource,
    pub(crate) redirects: usize,
    pub(crate) idle: Duration,
}

impl Options {
    /// The balancer's options for a service that is called this way: whoever cannot be called so is not picked.
    pub(crate) fn balancer_for(&self, destination: &Destination) -> BalancerOptions {
        let schemes = destination.via.schemes();
        let name = format!("an endpoint with the scheme {}", schemes.join(" or "));
        self.balancer.clone().with_filter(Filter::new(name, move |instance| instance.endpoint(schemes).is_some()))
    }

    pub(crate) fn allows(&self, method: &Method) -> bool {
        self.retries.as_ref().is_some_and(|retries| retries.allows(method))
    }
}

/// Makes a [`Client`] or a [`DiscoveryMiddleware`].
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    backend: Arc<dyn Backend>,
    options: Options,
}

impl ClientBuilder {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let options = Options {
            settings: Arc::new(|| reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT)),
            picker: Arc::new(|_| Box::new(PowerOfTwo)),
            balancer: BalancerOptions::default(),
            hosts: ServiceHosts::default(),
            when_empty: WhenEmpty::default(),
            retries: Some(Retries::default()),
            key: KeySource::Extension,
            redirects: REDIRECTS,
            idle: IDLE,
        };
        Self { backend, options }
    }

    /// Sets what every `reqwest::Client` is made of: timeouts, default headers, proxies, TLS roots and client certificates. The closure is
    /// called once for each instance that is called and once for everything that is no service, so share a cookie jar by its `Arc`.
    ///
    /// By default nothing but a connect timeout of 3 s is set; set one here too, as reqwest has none, and below the timeout of requests: those
    /// move on from an instance that does not answer a dial only if that ends before they do. For services the redirect policy is
    /// replaced, see [`with_redirects`](Self::with_redirects), as is the `dns_resolver` for instances that are registered under a DNS name.
    pub fn with_settings(mut self, settings: impl Fn() -> reqwest::ClientBuilder + Send + Sync + 'static) -> Self {
        self.options.settings = Arc::new(settings);
        self
    }

    /// Sets the picker of each service, given its name; [`PowerOfTwo`] for all by default.
    pub fn with_picker<F: PickerFactory>(mut self, picker: impl Fn(&str) -> F + Send + Sync + 'static) -> Self {
        self.options.picker = Arc::new(move |service| Box::new(picker(service)));
        self
    }

    /// Sets the options of every service's balancer: filters, zone, slow start, ejection and the like.
    pub fn with_balancer(mut self, options: BalancerOptions) -> Self {
        self.options.balancer = options;
        self
    }

    /// Sets which hosts of `http://` and `https://` URLs are services; by default names without a dot.
    pub fn with_hosts(mut self, hosts: ServiceHosts) -> Self {
        self.options.hosts = hosts;
        self
    }

    /// Sets what a request does while no instance can take it; by default it waits up to its timeout (`RequestBuilder::timeout`), or 10 s.
    /// With [`WhenEmpty::FailFast`] the first set of a service is waited for while the registry answers, since the first request opens its watch.
    pub fn with_when_empty(mut self, when_empty: WhenEmpty) -> Self {
        self.options.when_empty = when_empty;
        self
    }

    /// Sets which requests are sent again after they were sent in vain; `None` for none. [`Retries::default`] says what is by default.
    pub fn with_retries(mut self, retries: impl Into<Option<Retries>>) -> Self {
        self.options.retries = retries.into();
        self
    }

    /// Takes the key for pickers that keep a session together from this header, for requests that have no [`HashKey`] of their own.
    pub fn with_key_header(mut self, name: HeaderName) -> Self {
        self.options.key = KeySource::Header(name);
        self
    }

    /// Takes the key for pickers that keep a session together from this closure, for requests that have no [`HashKey`] of their own.
    pub fn with_key(mut self, key: impl Fn(&Request) -> Option<HashKey> + Send + Sync + 'static) -> Self {
        self.options.key = KeySource::Closure(Arc::new(key));
        self
    }

    /// Sets how many redirects of services are followed, each to an instance that is picked anew; 10 by default. With 0 the caller gets
    /// them as they are. So they do with a redirect to a host that is no service, which never gets what was meant for services.
    pub fn with_redirects(mut self, most: usize) -> Self {
        self.options.redirects = most;
        self
    }

    /// Sets after which time without a request a service's watch and clients are closed; 10 minutes by default. The next request opens
    /// them again. There are never more than 1,000: beyond that, whichever was not used for longest is closed.
    pub fn with_idle_timeout(mut self, idle: Duration) -> Self {
        self.options.idle = idle;
        self
    }

    /// Makes a client.
    ///
    /// # Errors
    /// `InvalidInput` if the [settings](Self::with_settings) make no `reqwest::Client`.
    pub fn build(self) -> Result<Client> {
        let plain = (self.options.settings)().build().map_err(|error| {
            let why = "the settings make no reqwest client; see the source";
            Error::new(ErrorKind::InvalidInput, "build", "a client", why).with_source(error)
        })?;
        Ok(Client::assemble(plain, self.middleware()))
    }

    /// Makes a middleware, which has to be the last one of its client.
    pub fn middleware(self) -> DiscoveryMiddleware {
        DiscoveryMiddleware::new(Services::new(self.backend, Arc::new(self.options)))
    }
}
