//! Whether the instance says that it serves, by the standard gRPC health protocol.

mod call;
pub(crate) mod message;

use std::sync::Arc;

use async_trait::async_trait;
use discovery_core::{Endpoint, ErrorKind, Result};

use crate::Check;
use crate::check::failure;
use call::{Answer, call};
use message::{Status, decode, encode};

/// Calls `grpc.health.v1.Health/Check` over a new HTTP/2 connection without TLS; `SERVING` is well, everything else is not
/// (<https://github.com/grpc/grpc/blob/master/doc/health-checking.md>).
///
/// A server without that service answers `UNIMPLEMENTED`. It counts as unhealthy, as for Envoy and Kubernetes, and the reason says
/// so, with kind `Unsupported`: use [`TcpCheck`](crate::TcpCheck) for such servers.
#[derive(Debug, Clone)]
pub struct GrpcCheck {
    service: Arc<str>,
}

impl Default for GrpcCheck {
    fn default() -> Self {
        Self::of("")
    }
}

impl GrpcCheck {
    /// Asks about one service of the server, such as `orders.v1.Orders`; by default, and with an empty name, about the server as a whole.
    pub fn of(service: impl Into<Arc<str>>) -> Self {
        Self { service: service.into() }
    }

    fn subject(&self) -> String {
        if self.service.is_empty() { "the server".to_owned() } else { format!("service {:?}", self.service) }
    }

    /// What the call's status means if it is not `OK`.
    fn refused(&self, endpoint: &Endpoint, code: u16, message: &str) -> discovery_core::Error {
        let (kind, why) = match code {
            5 => (ErrorKind::Unavailable, format!("the server does not know {} (NOT_FOUND)", self.subject())),
            7 => (ErrorKind::PermissionDenied, "the health service refuses us (PERMISSION_DENIED)".to_owned()),
            12 => (
                ErrorKind::Unsupported,
                "the server has no health service (UNIMPLEMENTED); add grpc.health.v1.Health to it, or check it by TCP"
                    .to_owned(),
            ),
            16 => (ErrorKind::Unauthenticated, "the health service wants credentials (UNAUTHENTICATED)".to_owned()),
            other => (ErrorKind::Unavailable, format!("the health service failed with status {other}")),
        };
        let why = if message.is_empty() { why } else { format!("{why}: {message}") };
        failure(endpoint, kind, why)
    }
}

#[async_trait]
impl Check for GrpcCheck {
    fn schemes(&self) -> &[&str] {
        &["grpc", "http", "tcp"]
    }

    async fn check(&self, endpoint: &Endpoint) -> Result<()> {
        let body = match call(endpoint, encode(&self.service)).await? {
            Answer::Ok(body) => body,
            Answer::Refused(code, message) => return Err(self.refused(endpoint, code, &message)),
        };
        let status = match decode(&body) {
            Ok(Status::Serving) => return Ok(()),
            Ok(Status::NotServing) => "NOT_SERVING".to_owned(),
            Ok(Status::Unknown) => "UNKNOWN".to_owned(),
            Ok(Status::ServiceUnknown) => "SERVICE_UNKNOWN".to_owned(),
            Ok(Status::Other(number)) => format!("the unknown status {number}"),
            Err(why) => return Err(failure(endpoint, ErrorKind::Internal, format!("the answer has {why}"))),
        };
        Err(failure(endpoint, ErrorKind::Unavailable, format!("{} is {status}", self.subject())))
    }
}
