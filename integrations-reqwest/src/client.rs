//! A client that calls services by name.

use std::fmt;
use std::sync::Arc;

use discovery_core::{Backend, Result};
use reqwest::{IntoUrl, Method, Request, Response};
use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};

use crate::builder::ClientBuilder;
use crate::middleware::DiscoveryMiddleware;

/// Calls services by name, and everything else as a `reqwest::Client` does. Clones share everything.
///
/// A request to a service waits for an instance, goes to the one that is picked, and moves to another one with its body untouched as long as
/// no connection was made. See [`DiscoveryMiddleware`] for what is reported of it, and [`CallError`](crate::CallError) for how it fails.
///
/// The first request to a service opens its watch, which stays open while requests come. With the last clone all of that ends; responses
/// that are still being read can be read to their end.
///
/// # Cancel safety
/// Dropping a request's future cancels it, and counts as that.
#[derive(Clone)]
pub struct Client {
    inner: ClientWithMiddleware,
    middleware: Arc<DiscoveryMiddleware>,
}

impl Client {
    /// Makes a client with default options.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn new(backend: Arc<dyn Backend>) -> Result<Self> {
        Self::builder(backend).build()
    }

    /// Starts building a client with other options.
    pub fn builder(backend: Arc<dyn Backend>) -> ClientBuilder {
        ClientBuilder::new(backend)
    }

    pub(crate) fn assemble(plain: reqwest::Client, middleware: DiscoveryMiddleware) -> Self {
        let middleware = Arc::new(middleware);
        let inner = reqwest_middleware::ClientBuilder::new(plain).with_arc(middleware.clone()).build();
        Self { inner, middleware }
    }

    /// The middleware that it calls services through, for balancers and figures, and to build other clients on.
    pub fn middleware(&self) -> &DiscoveryMiddleware {
        &self.middleware
    }

    /// Starts a GET request.
    pub fn get(&self, url: impl IntoUrl) -> RequestBuilder {
        self.inner.get(url)
    }

    /// Starts a POST request.
    pub fn post(&self, url: impl IntoUrl) -> RequestBuilder {
        self.inner.post(url)
    }

    /// Starts a PUT request.
    pub fn put(&self, url: impl IntoUrl) -> RequestBuilder {
        self.inner.put(url)
    }

    /// Starts a PATCH request.
    pub fn patch(&self, url: impl IntoUrl) -> RequestBuilder {
        self.inner.patch(url)
    }

    /// Starts a DELETE request.
    pub fn delete(&self, url: impl IntoUrl) -> RequestBuilder {
        self.inner.delete(url)
    }

    /// Starts a HEAD request.
    pub fn head(&self, url: impl IntoUrl) -> RequestBuilder {
        self.inner.head(url)
    }

    /// Starts a request.
    pub fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        self.inner.request(method, url)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// A [`CallError`](crate::CallError) if no instance could be reached, or if there were too many redirects; otherwise the error of reqwest.
    pub async fn execute(&self, request: Request) -> reqwest_middleware::Result<Response> {
        self.inner.execute(request).await
    }
}

impl From<Client> for ClientWithMiddleware {
    fn from(client: Client) -> Self {
        client.inner
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("middleware", &self.middleware).finish_non_exhaustive()
    }
}
