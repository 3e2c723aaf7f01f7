//! A pick for each request of any tower service.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use discovery_core::{Balancer, DEFAULT_WAIT, ErrorKind, Instance};
use tower::{BoxError, Layer, Service};

use crate::{ByResult, Classify};

/// Picks an instance for each request, hands both to the service inside, and reports how the request ended.
///
/// The service inside takes `(Arc<Instance>, Request)`, and decides which of the instance's endpoints it calls. Inside of a retry layer each
/// attempt is a pick of its own. The outcome is reported once the service inside has answered: for HTTP that is the head, whatever becomes
/// of the body. Dropped before, the request counts as cancelled (P8).
#[derive(Debug, Clone)]
pub struct BalanceLayer<C = ByResult> {
    balancer: Balancer,
    wait: Duration,
    classify: C,
}

impl BalanceLayer {
    /// Picks with this balancer, and takes a response for a success and an error for a failure.
    pub fn new(balancer: Balancer) -> Self {
        Self { balancer, wait: DEFAULT_WAIT, classify: ByResult }
    }
}

impl<C> BalanceLayer<C> {
    /// Sets how long a request waits for an instance while there is none; 10 s by default, zero for not at all.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets what is told to the picker about requests, and what their results say about instances.
    pub fn with_classifier<D>(self, classify: D) -> BalanceLayer<D> {
        BalanceLayer { balancer: self.balancer, wait: self.wait, classify }
    }
}

impl<S, C: Clone> Layer<S> for BalanceLayer<C> {
    type Service = Balanced<S, C>;

    fn layer(&self, inner: S) -> Balanced<S, C> {
        Balanced { inner, layer: self.clone() }
    }
}

/// The service of a [`BalanceLayer`]; it is ready when the service inside is.
///
/// # Errors
/// `discovery_core::Error` of the kind `NoInstance`, with the reason, if nobody can be picked within the wait, and `Closed` after the
/// backend was closed; otherwise what the service inside fails with.
#[derive(Debug, Clone)]
pub struct Balanced<S, C = ByResult> {
    inner: S,
    layer: BalanceLayer<C>,
}

impl<S, C, Request> Service<Request> for Balanced<S, C>
where
    S: Service<(Arc<Instance>, Request)> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    C: Classify<Request, S::Response, S::Error> + Clone + Send + 'static,
    Request: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The one that is ready is called; its clone has to become so first.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let BalanceLayer { balancer, wait, classify } = self.layer.clone();
        Box::pin(async move {
            let mut picked = balancer.pick(&classify.context(&request));
            if picked.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoInstance) {
                // What the picker knows of the request cannot be held while waiting, as requests need not be `Sync`.
                balancer.pick_within(&discovery_core::Context::default(), wait).await?.discard();
                picked = balancer.pick(&classify.context(&request));
            }
            let pick = picked?;
            let result = inner.call((pick.instance(), request)).await;
            pick.finish(classify.outcome(result.as_ref()));
            result.map_err(Into::into)
        })
    }
}
