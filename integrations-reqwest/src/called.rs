//! Which instance a request went to.

use std::sync::Arc;

use discovery_core::{Endpoint, Instance};
use reqwest::Url;

/// The instance that a request went to.
///
/// It is among the extensions of the response, and among those of the request, where other middlewares and
/// `execute_with_extensions` find who was tried last, also after an error.
#[derive(Debug, Clone)]
pub struct Called(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    instance: Arc<Instance>,
    endpoint: Endpoint,
    /// Scheme and name that were sent.
    base: Url,
}

impl Called {
    pub(crate) fn new(instance: Arc<Instance>, endpoint: Endpoint, base: Url) -> Self {
        Self(Arc::new(Inner { instance, endpoint, base }))
    }

    /// Whether it is this very record of the instance.
    pub(crate) fn is(&self, instance: &Arc<Instance>) -> bool {
        Arc::ptr_eq(&self.0.instance, instance)
    }

    /// Whether a URL is one of this instance, by the name that was sent or by its address.
    pub(crate) fn is_origin_of(&self, url: &Url) -> bool {
        let Inner { endpoint, base, .. } = &*self.0;
        let address = || Url::parse(&format!("{}://{}", base.scheme(), endpoint.authority())).ok();
        url.origin() == base.origin() || address().is_some_and(|address| url.origin() == address.origin())
    }

    pub(crate) fn by_tls(&self) -> bool {
        self.0.base.scheme() == "https"
    }

    /// The instance, as its record was when it was picked.
    pub fn instance(&self) -> &Instance {
        &self.0.instance
    }

    /// The address that was called.
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }
}
