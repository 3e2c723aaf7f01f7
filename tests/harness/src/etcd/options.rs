//! What an etcd server is started with besides its addresses.

use std::ffi::OsString;

#[cfg(feature = "certificates")]
use crate::Certificates;

/// Options of an etcd server; the default is a server as it comes out of the box.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    /// Whether clients have to speak TLS.
    pub(super) tls: bool,
}

impl EtcdOptions {
    /// Adds arguments, for example `["--quota-backend-bytes", "2000000"]`.
    #[must_use]
    pub fn with_args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Speaks TLS with its clients, and asks each for a certificate of the same authority.
    #[cfg(feature = "certificates")]
    #[must_use]
    pub fn with_tls(mut self, certificates: &Certificates) -> Self {
        self.args.extend(certificates.arguments(["--cert-file", "--key-file", "--trusted-ca-file"]));
        self.args.push("--client-cert-auth".into());
        self.tls = true;
        self
    }

    /// Adds an environment variable, for example `ETCD_AUTH_TOKEN_TTL` and `3`.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}
