//! The connection: who the master is, and the next host when one fails.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use discovery_core::store::Hosts;
use discovery_core::{Policy, RegistryUrl, Result};

use crate::cluster::{Bounds, Cluster};
use crate::live::Live;
use crate::node::{Node, PubSub};
use crate::sentinel;
use crate::settings::{Settings, Topology};

/// The hosts, and the connection that works.
pub(crate) struct Connection {
    hosts: Hosts<Live>,
    settings: Settings,
    bounds: Bounds,
}

impl Connection {
    pub(crate) fn new(url: &RegistryUrl, settings: Settings, policy: &Policy) -> Self {
        let hosts = Hosts::new(settings.hosts.clone(), url.to_string(), policy);
        let bounds = Bounds::new(policy, hosts.patience());
        Self { hosts, settings, bounds }
    }

    /// The address without credentials.
    pub(crate) fn address(&self) -> &str {
        self.hosts.address()
    }

    /// The database by its number.
    pub(crate) fn database(&self) -> i64 {
        self.settings.way.database()
    }

    /// The connection that works, or worked last.
    pub(crate) fn live(&self) -> Result<Arc<Live>> {
        self.hosts.live()
    }

    pub(crate) fn source_address(&self) -> Option<IpAddr> {
        self.live().ok()?.source()
    }

    /// Gives the connection up and tries each host once, beginning after the one that failed.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.hosts.reconnect(|host| self.open(host)).await
    }

    async fn open(&self, host: String) -> Result<Live> {
        let host = &host;
        let Settings { topology, way, sentinel_way, .. } = &self.settings;
        match topology {
            Topology::Hosts => Ok(Live::one(Node::ready(host, way, PubSub::Plain).await?, self.bounds)),
            Topology::Sentinel(name) => {
                let master = sentinel::master(host, sentinel_way, name).await?;
                Ok(Live::one(Node::ready(&master, way, PubSub::Plain).await?, self.bounds))
            }
            Topology::Cluster => Ok(Live::many(Cluster::open(host, way, self.bounds).await?, self.bounds)),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings hold the password.
        f.debug_struct("Connection").field("address", &self.address()).finish_non_exhaustive()
    }
}
