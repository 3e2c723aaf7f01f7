//! What a Redis server is started with besides its address.

use std::ffi::OsString;

#[cfg(feature = "certificates")]
use crate::Certificates;

/// Options of a Redis server; the default keeps its data on disk and is otherwise as it comes out of the box.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    pub(super) args: Vec<OsString>,
    /// Whether the server also listens for clients with TLS.
    pub(super) tls: bool,
}

impl RedisOptions {
    /// Adds arguments, for example `["--maxmemory", "5mb"]`.
    #[must_use]
    pub fn with_args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Also speaks TLS, on a port of its own, and asks each client there for a certificate of the same authority.
    #[cfg(feature = "certificates")]
    #[must_use]
    pub fn with_tls(mut self, certificates: &Certificates) -> Self {
        self.args.extend(certificates.arguments(["--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file"]));
        self.tls = true;
        self
    }
}
