//! The store as the engine drives it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::store::{Audit, Capabilities, Digest, Lease, Owner, Renewal, Scope, Sink, Store, Written};
use discovery_core::{Error, Key, Result};

use crate::connection::{Connection, Live};
use crate::error::classify;
use crate::{lease, load, record, watch};

pub(crate) struct ZooKeeperStore {
    connection: Connection,
    capabilities: Capabilities,
}

impl ZooKeeperStore {
    pub(crate) fn new(connection: Connection, capabilities: Capabilities) -> Self {
        Self { connection, capabilities }
    }

    fn live(&self) -> Result<Arc<Live>> {
        self.connection.live()
    }
}

#[async_trait]
impl Store for ZooKeeperStore {
    fn address(&self) -> String {
        self.connection.address().to_owned()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn parse_key<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        self.connection.tree.split(key)
    }

    async fn connect(&self) -> Result<()> {
        self.connection.connect().await
    }

    async fn ping(&self) -> Result<()> {
        let live = self.live()?;
        // ZooKeeper refuses nobody who comes with an old password; requests are refused instead, one after the other.
        self.connection.log_in_anew(&live).await?;
        let answer = lease::ask(&live, &self.connection.tree).await;
        answer.map_err(|error| classify(error, "reach", self.connection.address()))
    }

    /// The TTL was asked for when the session was opened.
    async fn grant(&self, _ttl: Duration) -> Result<Lease> {
        lease::grant(&*self.live()?, &self.connection.tree).await
    }

    async fn renew(&self, lease: &Lease, _held: &[Key]) -> Result<Renewal> {
        lease::renew(&*self.connection.session()?, &self.connection.tree, lease).await
    }

    async fn audit(&self, lease: &Lease, held: &[Key]) -> Result<Audit> {
        lease::audit(&*self.live()?, &self.connection.tree, lease, held).await
    }

    async fn revoke(&self, lease: &Lease) -> Result<()> {
        lease::revoke(&*self.live()?, &self.connection.tree, lease).await
    }

    async fn write(&self, lease: &Lease, key: &Key, value: &[u8], previous: Option<&Owner>) -> Result<Written> {
        record::write(&*self.live()?, &self.connection.tree, lease, key, value, previous).await
    }

    async fn remove(&self, key: &Key, owner: &Owner) -> Result<()> {
        record::remove(&*self.live()?, &self.connection.tree, key, owner).await
    }

    async fn follow(&self, scope: &Scope, sink: &dyn Sink) -> Error {
        match self.live() {
            Ok(live) => watch::follow(&live, &self.connection.tree, scope, sink).await,
            Err(error) => error,
        }
    }

    async fn digest(&self, scope: &Scope, since: u64) -> Result<Digest> {
        load::digest(&*self.live()?, &self.connection.tree, scope, since).await
    }

    fn source_address(&self) -> Option<IpAddr> {
        self.connection.source_address()
    }
}
