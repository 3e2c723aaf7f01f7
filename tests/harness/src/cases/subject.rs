//! The backend under test.

use std::{fmt::Display, net::SocketAddr, sync::Arc};

use discovery_core::{Backend, Policy, RegistryUrl, Result};

use super::Wire;

/// A backend: how its URLs begin, and its two ways to open a handle.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    scheme: &'static str,
    connect: fn(&RegistryUrl) -> Result<Arc<dyn Backend>>,
    open: fn(&RegistryUrl, Policy) -> Result<Arc<dyn Backend>>,
}

impl Subject {
    /// Takes the scheme, to which an `s` is added for TLS, and the functions `connect` and `open` of a backend.
    pub const fn new(
        scheme: &'static str,
        connect: fn(&RegistryUrl) -> Result<Arc<dyn Backend>>,
        open: fn(&RegistryUrl, Policy) -> Result<Arc<dyn Backend>>,
    ) -> Self {
        Self { scheme, connect, open }
    }

    /// The scheme without TLS.
    #[cfg(feature = "certificates")]
    pub(super) fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Opens a handle, or says why not.
    #[cfg(feature = "certificates")]
    pub(super) fn try_connect(&self, url: &RegistryUrl) -> Result<Arc<dyn Backend>> {
        (self.connect)(url)
    }

    /// Opens a handle on what follows the scheme, such as `127.0.0.1:2379/prefix?ttl=3s`, as a user does.
    pub fn connect(&self, rest: impl Display) -> Arc<dyn Backend> {
        (self.connect)(&url(self.scheme, rest)).unwrap()
    }

    /// Opens a handle on what follows the scheme, under a policy of the test's.
    pub fn open(&self, rest: impl Display, policy: Policy) -> Arc<dyn Backend> {
        (self.open)(&url(self.scheme, rest), policy).unwrap()
    }

    /// Opens a handle through a proxy of its own.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    pub async fn open_through(
        &self,
        server: SocketAddr,
        prefix: &str,
        policy: Policy,
    ) -> Result<(Arc<dyn Backend>, Arc<Wire>)> {
        let wire = Wire::to(server).await;
        Ok((self.open_over(&wire, prefix, policy)?, Arc::new(wire)))
    }

    /// Opens a handle through a proxy that is there already.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    pub fn open_over(&self, wire: &Wire, prefix: &str, policy: Policy) -> Result<Arc<dyn Backend>> {
        (self.open)(&format!("{}://{}{prefix}", self.scheme, wire.0.address()).parse()?, policy)
    }

    /// As [`connect`](Self::connect), over TLS.
    #[cfg(feature = "certificates")]
    pub(super) fn connect_tls(&self, rest: impl Display) -> Arc<dyn Backend> {
        (self.connect)(&url(&format!("{}s", self.scheme), rest)).unwrap()
    }

    /// As [`open`](Self::open), over TLS.
    #[cfg(feature = "certificates")]
    pub(super) fn open_tls(&self, rest: impl Display, policy: Policy) -> Arc<dyn Backend> {
        (self.open)(&url(&format!("{}s", self.scheme), rest), policy).unwrap()
    }
}

fn url(scheme: &str, rest: impl Display) -> RegistryUrl {
    format!("{scheme}://{rest}").parse().unwrap()
}
