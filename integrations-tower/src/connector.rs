//! A connector that dials a service by its name.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use discovery_core::{Balancer, DEFAULT_WAIT, Error, ErrorKind, Instance, Outcome};
use http::Uri;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt};

/// Puts an instance's address in the place of a service's name, for another connector to dial, such as hyper-util's `HttpConnector`.
///
/// `http://orders/path` is dialled at an instance of the service that was added as `orders`, whatever port the URI names, and every other
/// host as it is. Who cannot be reached is reported, and another instance dialled. Requests stay as they are, `Host` included.
///
/// **Limits**: an HTTP client asks for connections, not for each request, and keeps them under the service's name. So calls stay with the
/// instance of their connection, also after it has left the set, until the connection ends; an HTTP/2 client has but one. Bound that with
/// the client's `pool_idle_timeout` or `pool_max_idle_per_host(0)`, or pick for each request with [`BalanceLayer`](crate::BalanceLayer).
/// What became of the requests is not reported. TLS inside checks the certificate for the address, unless it is told a name.
///
/// # Errors
/// `discovery_core::Error`: `NoInstance` if nobody can be picked within the wait, `Unavailable` with each instance that was dialled in vain.
#[derive(Debug, Clone)]
pub struct Connector<C> {
    inner: C,
    services: HashMap<String, Balancer>,
    wait: Duration,
}

impl<C> Connector<C> {
    /// Knows no service yet, and dials with `inner`.
    pub fn new(inner: C) -> Self {
        Self { inner, services: HashMap::new(), wait: DEFAULT_WAIT }
    }

    /// Adds a service under the host that URIs name it by, in upper or lower case.
    #[must_use]
    pub fn with_service(mut self, host: impl Into<String>, balancer: Balancer) -> Self {
        self.services.insert(host.into().to_ascii_lowercase(), balancer);
        self
    }

    /// Sets how long a connection waits for an instance while there is none, dials in vain included; 10 s by default, zero for not at all.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

impl<C: Service<Uri, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static> Service<Uri> for Connector<C> {
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(())) // Each dial waits for the connector inside by itself.
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (inner, wait) = (self.inner.clone(), self.wait);
        let Some(balancer) = uri.host().and_then(|host| self.services.get(&host.to_ascii_lowercase())).cloned() else {
            return Box::pin(async { inner.oneshot(uri).await.map_err(Into::into) });
        };
        Box::pin(async move {
            let mut failed: BTreeMap<Arc<str>, BoxError> = BTreeMap::new();
            let unavailable = |failed: &BTreeMap<Arc<str>, BoxError>, nobody: Option<Error>| {
                let mut why: Vec<_> = failed.iter().map(|(id, error)| format!("{id}: {error}")).collect();
                why.extend(nobody.map(|error| error.to_string()));
                Error::new(ErrorKind::Unavailable, "connect to", uri.to_string(), why.join("; "))
            };
            let started = Instant::now();
            loop {
                let left = wait.saturating_sub(started.elapsed());
                let pick = match balancer.pick_within(&discovery_core::Context::default(), left).await {
                    Ok(pick) => pick,
                    Err(error) if failed.is_empty() => return Err(error.into()),
                    Err(error) => return Err(unavailable(&failed, Some(error)).into()),
                };
                let instance = pick.instance();
                let dialled = match at(&uri, &instance) {
                    Ok(address) => inner.clone().oneshot(address).await.map_err(Into::into),
                    Err(error) => Err(error.into()),
                };
                pick.finish(if dialled.is_ok() { Outcome::Success } else { Outcome::Unreachable });
                let Err(error) = dialled else { return dialled };
                // Each failure takes an instance out of the next picks, so a few tries suffice; who comes again is the best that there is.
                if failed.insert(instance.key().id, error).is_some() || failed.len() == 3 {
                    return Err(unavailable(&failed, None).into());
                }
            }
        })
    }
}

/// The URI with the instance's address in the place of the service's name.
fn at(uri: &Uri, instance: &Instance) -> Result<Uri, Error> {
    let scheme = uri.scheme_str().unwrap_or("http");
    let unusable = |why| Error::new(ErrorKind::InvalidInput, "find an address of", instance.id(), why);
    let none = format!("it has no endpoint with the scheme {scheme} or tcp; register one or filter by scheme");
    let endpoint = instance.endpoint(&[scheme, "tcp"]).ok_or_else(|| unusable(none))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let address = Uri::builder().scheme(scheme).authority(endpoint.authority()).path_and_query(path);
    address.build().map_err(|error| unusable(format!("{endpoint} in {uri}: {error}")))
}
