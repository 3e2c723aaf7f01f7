//! The store as the engine drives it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::store::{Audit, Capabilities, Digest, Lease, Owner, Renewal, Scope, Sink, Stamps, Store, Written};
use discovery_core::{Error, Key, KeySpace, Result};

use crate::connection::{Connection, Live, ask};
use crate::{lease, load, record, watch};

pub(crate) struct EtcdStore {
    connection: Connection,
    space: KeySpace,
    capabilities: Capabilities,
    stamps: Stamps,
}

impl EtcdStore {
    pub(crate) fn new(connection: Connection, space: KeySpace, capabilities: Capabilities) -> Self {
        Self { connection, space, capabilities, stamps: Stamps::default() }
    }

    fn live(&self) -> Result<Arc<Live>> {
        self.connection.live()
    }

    /// The prefix of a scope, and whether its values matter.
    fn range(&self, scope: &Scope) -> (String, bool) {
        match scope {
            Scope::Service(service) => (self.space.service_prefix(service), true),
            Scope::Names => (self.space.root(), false),
        }
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn address(&self) -> String {
        self.connection.address().to_owned()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn parse_key<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        self.space.split(key)
    }

    async fn connect(&self) -> Result<()> {
        self.connection.connect(&self.space.root()).await
    }

    async fn ping(&self) -> Result<()> {
        ask(&self.live()?.client, &self.space.root(), self.connection.address()).await
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease> {
        lease::grant(&self.live()?.client, ttl, self.connection.address()).await
    }

    async fn renew(&self, lease: &Lease, _held: &[Key]) -> Result<Renewal> {
        lease::renew(&self.live()?.client, lease).await
    }

    async fn audit(&self, lease: &Lease, held: &[Key]) -> Result<Audit> {
        lease::audit(&*self.live()?, &self.space, &self.stamps, lease, held).await
    }

    async fn revoke(&self, lease: &Lease) -> Result<()> {
        lease::revoke(&self.live()?.client, lease).await
    }

    async fn write(&self, lease: &Lease, key: &Key, value: &[u8], previous: Option<&Owner>) -> Result<Written> {
        record::write(&self.live()?.client, &self.space, &self.stamps, lease, key, value, previous).await
    }

    async fn remove(&self, key: &Key, owner: &Owner) -> Result<()> {
        self.stamps.forget(key);
        record::remove(&self.live()?.client, &self.space.key(key), owner).await
    }

    async fn follow(&self, scope: &Scope, sink: &dyn Sink) -> Error {
        let (prefix, values) = self.range(scope);
        match self.live() {
            Ok(live) => watch::follow(&live, &prefix, values, sink).await,
            Err(error) => error,
        }
    }

    async fn digest(&self, scope: &Scope, since: u64) -> Result<Digest> {
        load::digest(&self.live()?.client, &self.range(scope).0, since).await
    }

    fn source_address(&self) -> Option<IpAddr> {
        self.connection.source_address()
    }
}
