//! The middleware that sends requests to services.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use discovery_core::Balancer;
use http::Extensions;
use reqwest::{IntoUrl, Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tokio::time::Instant;

use crate::call::call;
use crate::called::Called;
use crate::error::CallError;
use crate::redirect::follow;
use crate::services::Services;

/// Sends requests to services, as the last middleware of a client; clones share everything. [`ClientBuilder::middleware`] makes it.
///
/// A request to a service ends here: it is picked for anew each time that a middleware before this one runs it again, so a retry goes to
/// another instance. A request to anything else is passed on untouched. Whatever stands behind this middleware sees only the latter.
///
/// **Outcome (P8)**: each attempt is reported once. It is a success at the end of the body; a failure if the status is 5xx, or if the
/// connection or the body breaks or times out; unreachable if there was no connection, and from the third request in a row on that got no
/// answer in its time; cancelled if it is dropped before its end.
///
/// [`ClientBuilder::middleware`]: crate::ClientBuilder::middleware
#[derive(Clone)]
pub struct DiscoveryMiddleware {
    services: Arc<Services>,
}

impl DiscoveryMiddleware {
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self { services }
    }

    /// The balancer of the service that a URL means, for its members, their counters and their freshness; it is opened if it is not. `None`
    /// if the URL means no service.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, as everything that starts tasks.
    ///
    /// # Errors
    /// `InvalidInput` if it is no URL, or names a service that cannot be.
    pub fn balancer(&self, url: impl IntoUrl) -> discovery_core::Result<Option<Balancer>> {
        let url = url.into_url().map_err(|error| {
            let invalid = discovery_core::ErrorKind::InvalidInput;
            discovery_core::Error::new(invalid, "find", "a service", "this is no URL with a host").with_source(error)
        })?;
        let destination = self.services.options.hosts.destination(&url)?;
        Ok(destination.map(|destination| self.services.get(destination).shared().balancer.clone()))
    }

    /// How many services are open, and how many instances of them have a client.
    pub fn held(&self) -> (usize, usize) {
        self.services.held()
    }
}

/// Without the macro, which would keep the request twice: a future of more than a kilobyte is allocated slowly, under a lock.
impl Middleware for DiscoveryMiddleware {
    fn handle<'a, 'e, 'n, 'f>(
        &'a self,
        mut request: Request,
        extensions: &'e mut Extensions,
        next: Next<'n>,
    ) -> Pin<Box<dyn Future<Output = Result<Response>> + Send + 'f>>
    where
        'a: 'f,
        'e: 'f,
        'n: 'f,
    {
        Box::pin(async move {
            let started = Instant::now();
            let timeout = request.timeout().copied();
            let mut hops = 0;
            loop {
                let destination = self.services.options.hosts.destination(request.url()).map_err(|error| {
                    let service = request.url().host_str().unwrap_or_default().into();
                    Error::middleware(CallError::new(error.kind(), &service, error.message()))
                })?;
                let Some(destination) = destination else {
                    // What an earlier run of this request left says nothing of this one.
                    extensions.remove::<Called>();
                    return next.run(request, extensions).await;
                };
                let service = self.services.get(destination);
                let answer = call(service.shared(), &mut request, extensions).await;
                let (response, loan) = answer.map_err(|error| if hops > 0 { sent(error) } else { error })?;
                let options = &self.services.options;
                if !follow(&response, &mut request, &loan, &mut hops, options.redirects, &options.hosts)? {
                    return Ok(response);
                }
                if let Some(timeout) = timeout {
                    *request.timeout_mut() = Some(timeout.saturating_sub(started.elapsed()));
                }
            }
        })
    }
}

/// Makes the error of a request one of a request that was redirected.
fn sent(error: Error) -> Error {
    match error {
        Error::Middleware(error) => match error.downcast::<CallError>() {
            Ok(error) => Error::middleware(error.with_sent()),
            Err(error) => Error::Middleware(error),
        },
        error @ Error::Reqwest(_) => error,
    }
}

impl fmt::Debug for DiscoveryMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiscoveryMiddleware").field("services", &self.services).finish()
    }
}
