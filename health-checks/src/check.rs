//! What a check is.

use std::sync::Arc;

use async_trait::async_trait;
use discovery_core::{Endpoint, Error, ErrorKind, Result};

/// Asks an instance whether it does its work.
///
/// Implemented by [`TcpCheck`](crate::TcpCheck), [`HttpCheck`](crate::HttpCheck) and [`GrpcCheck`](crate::GrpcCheck), and by whoever
/// speaks another protocol. The [`Checker`](crate::Checker) calls it, never twice at once for one instance, and decides what follows.
#[async_trait]
pub trait Check: Send + Sync + 'static {
    /// The schemes of the endpoints that can be asked, the best first; [`with_schemes`](crate::CheckerOptions::with_schemes) overrides it.
    fn schemes(&self) -> &[&str];

    /// Asks once.
    ///
    /// It need not end by itself: the checker drops it at its timeout. A panic counts as a failure.
    ///
    /// # Errors
    /// Why the instance is not well. The error's text is what the balancer's explanation shows.
    ///
    /// # Cancel safety
    /// Has to be safe to drop at any time, and to leave nothing running.
    async fn check(&self, endpoint: &Endpoint) -> Result<()>;
}

#[async_trait]
impl<C: Check + ?Sized> Check for Arc<C> {
    fn schemes(&self) -> &[&str] {
        (**self).schemes()
    }

    async fn check(&self, endpoint: &Endpoint) -> Result<()> {
        (**self).check(endpoint).await
    }
}

/// Says why a check of `endpoint` failed.
pub(crate) fn failure(endpoint: &Endpoint, kind: ErrorKind, why: impl Into<String>) -> Error {
    Error::new(kind, "check", endpoint.to_string(), why)
}
