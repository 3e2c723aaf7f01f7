//! Where an instance is called, and under which name.

use std::sync::Arc;

use discovery_core::{Endpoint, Instance, TlsFiles};
use http::uri::{Authority, Scheme};

/// The schemes that are called, the most telling first: in the clear, and with TLS.
const PLAIN: [&str; 4] = ["grpc", "http", "tcp", "unix"];
const SECURE: [&str; 6] = ["grpcs", "https", "grpc", "http", "tcp", "unix"];

/// The metadata that names an instance's certificate, where it is not the service's name.
pub(super) const TLS_NAME: &str = "tls.name";

/// The endpoint of an instance that a channel takes, and what its server is called.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    pub(super) service: Arc<str>,
    /// The name that its certificate must have.
    pub(super) name: String,
    /// What stands before the path of a request.
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
}

impl Target {
    /// Chooses the endpoint, or says why none can be called. With TLS every endpoint is called with TLS, whatever its scheme says: a record
    /// in the registry must not be able to turn it off.
    pub(super) fn of(instance: &Instance, tls: Option<&TlsFiles>) -> Result<Self, String> {
        let schemes: &[&str] = if tls.is_some() { &SECURE } else { &PLAIN };
        let Some(endpoint) = instance.endpoint(schemes) else {
            return Err(match instance.endpoint(&SECURE) {
                Some(secure) => format!("{secure}: it wants TLS; give the channel certificates by `with_tls`"),
                None => {
                    format!("instance {} has no endpoint with one of the schemes {}", instance.id(), SECURE.join(", "))
                }
            });
        };
        // What the user pins counts before what the registry says.
        let pinned = tls.and_then(TlsFiles::server_name).or_else(|| instance.metadata(TLS_NAME));
        let name = pinned.unwrap_or(instance.service()).to_owned();
        // A Unix socket's path is no authority; as elsewhere, its server is called localhost.
        let authority = match (tls, endpoint.unix_path()) {
            (Some(_), _) => name.clone(),
            (None, Some(_)) => "localhost".to_owned(),
            (None, None) => endpoint.authority(),
        };
        let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        match authority.parse() {
            Ok(authority) => {
                Ok(Self { endpoint: endpoint.clone(), service: instance.service().into(), name, scheme, authority })
            }
            Err(error) => Err(format!("{endpoint}: {authority:?} cannot stand in a request: {error}")),
        }
    }
}
