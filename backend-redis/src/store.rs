//! The store as the engine drives it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::store::{Audit, Capabilities, Digest, Lease, Owner, Renewal, Scope, Sink, Stamps, Store, Written};
use discovery_core::{Error, Key, Result};

use crate::connection::Connection;
use crate::digest::Rounds;
use crate::layout::Layout;
use crate::lease::{self, Footprint};
use crate::live::Live;
use crate::{digest, record, watch};

pub(crate) struct RedisStore {
    connection: Connection,
    layout: Layout,
    capabilities: Capabilities,
    footprint: Footprint,
    stamps: Stamps,
    rounds: Rounds,
    /// The engine's deadline of a request.
    timeout: Duration,
}

impl RedisStore {
    pub(crate) fn new(connection: Connection, layout: Layout, capabilities: Capabilities, timeout: Duration) -> Self {
        Self {
            connection,
            layout,
            capabilities,
            footprint: Footprint::default(),
            stamps: Stamps::default(),
            rounds: Rounds::default(),
            timeout,
        }
    }

    fn live(&self) -> Result<Arc<Live>> {
        self.connection.live()
    }
}

#[async_trait]
impl Store for RedisStore {
    fn address(&self) -> String {
        self.connection.address().to_owned()
    }

    /// The databases of a server have nothing in common.
    fn identity(&self) -> String {
        format!("{}#{}", self.connection.address(), self.connection.database())
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn parse_key<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        self.layout.space().split(key)
    }

    async fn connect(&self) -> Result<()> {
        self.connection.connect().await
    }

    async fn ping(&self) -> Result<()> {
        self.live()?.ping().await
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease> {
        Ok(lease::grant(&self.footprint, ttl))
    }

    async fn renew(&self, lease: &Lease, held: &[Key]) -> Result<Renewal> {
        lease::renew(&*self.live()?, &self.layout, self.timeout, lease, held).await
    }

    async fn audit(&self, lease: &Lease, held: &[Key]) -> Result<Audit> {
        lease::audit(&*self.live()?, &self.layout, &self.footprint, &self.stamps, self.timeout, lease, held).await
    }

    async fn revoke(&self, lease: &Lease) -> Result<()> {
        lease::revoke(&*self.live()?, &self.layout, &self.footprint, lease).await
    }

    async fn write(&self, lease: &Lease, key: &Key, value: &[u8], previous: Option<&Owner>) -> Result<Written> {
        let live = self.live()?;
        self.footprint.touch(lease, key);
        record::write(&live, &self.layout, &self.stamps, lease, key, value, previous).await
    }

    async fn remove(&self, key: &Key, owner: &Owner) -> Result<()> {
        self.stamps.forget(key);
        record::remove(&*self.live()?, &self.layout, key, owner).await
    }

    async fn follow(&self, scope: &Scope, sink: &dyn Sink) -> Error {
        match self.live() {
            Ok(live) => watch::follow(&live, &self.layout, scope, sink).await,
            Err(error) => error,
        }
    }

    async fn digest(&self, scope: &Scope, since: u64) -> Result<Digest> {
        digest::digest(&*self.live()?, &self.layout, &self.rounds, scope, since).await
    }

    fn source_address(&self) -> Option<IpAddr> {
        self.connection.source_address()
    }
}
