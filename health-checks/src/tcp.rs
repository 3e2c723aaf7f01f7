//! Whether somebody listens.

use async_trait::async_trait;
use discovery_core::{Endpoint, Result};

use crate::Check;
use crate::dial::dial;

/// Connects and closes the connection; a connection is all that is asked for.
///
/// The kernel accepts connections for a process that hangs, so this notices a process that is gone or a host that is away, and nothing
/// else. Where the service speaks HTTP or gRPC, ask it through that. Any scheme over TCP will do, those with TLS too.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct TcpCheck {}

#[async_trait]
impl Check for TcpCheck {
    fn schemes(&self) -> &[&str] {
        &["tcp", "grpc", "http", "grpcs", "https"]
    }

    async fn check(&self, endpoint: &Endpoint) -> Result<()> {
        dial(endpoint).await.map(drop)
    }
}
