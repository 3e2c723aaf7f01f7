//! Which instance a request went to.

use std::sync::Arc;

use discovery_core::{Endpoint, Instance};

/// The instance that a request went to.
///
/// It is among the extensions of the response, and among those of the request, where other middlewares and
/// `execute_with_extensions` find who was tried last, also after an error.
#[derive(Debug, Clone)]
pub struct Called(Arc<(Arc<Instance>, Endpoint)>);

impl Called {
    pub(crate) fn new(instance: Arc<Instance>, endpoint: Endpoint) -> Self {
        Self(Arc::new((instance, endpoint)))
    }

    /// Whether it is this very record of the instance.
    pub(crate) fn is(&self, instance: &Arc<Instance>) -> bool {
        Arc::ptr_eq(&self.0.0, instance)
    }

    /// The instance, as its record was when it was picked.
    pub fn instance(&self) -> &Instance {
        &self.0.0
    }

    /// The address that was called.
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.1
    }
}
