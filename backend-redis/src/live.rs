//! What has answered: one server, or the masters of a Cluster.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use discovery_core::Result;
use redis::Cmd;

use crate::cluster::{Bounds, Cluster};
use crate::node::{Node, Patience, Subscription};
use crate::notice::Id;
use crate::script::Answer;

/// The connections in use, one to each server.
pub(crate) struct Live {
    servers: Servers,
    /// How long what is done besides, such as keeping the list of services, may take: its server may be another one, and silent.
    pub(crate) glance: Duration,
    pub(crate) patience: Patience,
}

enum Servers {
    /// Which has everything.
    One(Arc<Node>),
    Many(Cluster),
}

impl Live {
    pub(crate) fn one(node: Node, bounds: Bounds) -> Self {
        Self::of(Servers::One(Arc::new(node)), bounds)
    }

    pub(crate) fn many(cluster: Cluster, bounds: Bounds) -> Self {
        Self::of(Servers::Many(cluster), bounds)
    }

    fn of(servers: Servers, bounds: Bounds) -> Self {
        Self { servers, glance: bounds.glance, patience: bounds.patience }
    }

    /// The server that has the keys of a stem.
    fn node(&self, operation: &'static str, stem: &str) -> Result<Arc<Node>> {
        match &self.servers {
            Servers::One(node) => Ok(node.clone()),
            Servers::Many(cluster) => cluster.node(operation, stem),
        }
    }

    /// Calls the script on the server that has the stem's keys.
    pub(crate) async fn call(
        &self,
        verb: &'static str,
        stem: impl AsRef<str> + Send,
        arguments: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Answer> {
        let stem = stem.as_ref();
        self.node(verb, stem)?.call(verb, stem, arguments).await
    }

    /// The ids that changed after a revision, oldest first, and the revision of the change.
    pub(crate) async fn changed(&self, stem: &str, after: u64, most: usize) -> Result<Vec<(Id, u64)>> {
        self.node("read", stem)?.changed(stem, after, most).await
    }

    /// Listens to the changes of a scope, and returns once the server has confirmed it.
    pub(crate) async fn subscribe(&self, stem: &str) -> Result<Subscription> {
        self.node("watch", stem)?.subscribe(stem).await
    }

    /// Asks for an answer; in a Cluster every master, of which one has to give it.
    pub(crate) async fn ping(&self) -> Result<()> {
        match &self.servers {
            Servers::One(node) => node.ping().await,
            Servers::Many(cluster) => cluster.ping().await,
        }
    }

    /// The local address that a server is reached from.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        match &self.servers {
            Servers::One(node) => node.source(),
            Servers::Many(cluster) => cluster.first()?.source(),
        }
    }
}
