//! Which instance a request went to.

use discovery_core::{Endpoint, Instance};

/// The instance that a request went to.
///
/// It is among the extensions of the response, and among those of the request, where other middlewares and
/// `execute_with_extensions` find who was tried last, also after an error.
#[derive(Debug, Clone)]
pub struct Called {
    instance: std::sync::Arc<Instance>,
    endpoint: Endpoint,
}

impl Called {
    pub(crate) fn new(instance: std::sync::Arc<Instance>, endpoint: Endpoint) -> Self {
        Self { instance, endpoint }
    }

    /// The instance, as its record was when it was picked.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// The address that was called.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}
