//! What has answered: one server, or the masters of a Cluster.

use std::net::IpAddr;
use std::sync::Arc;

use discovery_core::{Error, ErrorKind, Result};
use futures_util::future::try_join_all;
use redis::Cmd;

use crate::cluster::{Map, slot};
use crate::node::{Node, Subscription};
use crate::notice::Id;
use crate::script::Answer;

/// The connections in use, one to each server.
pub(crate) struct Live {
    /// Never empty.
    nodes: Vec<Arc<Node>>,
    /// Which of them has a slot; `None` for a single server, which has all.
    map: Option<Map>,
}

impl Live {
    pub(crate) fn one(node: Node) -> Self {
        Self { nodes: vec![Arc::new(node)], map: None }
    }

    pub(crate) fn many(nodes: Vec<Node>, map: Map) -> Self {
        Self { nodes: nodes.into_iter().map(Arc::new).collect(), map: Some(map) }
    }

    /// The server that has the keys of a stem.
    fn node(&self, operation: &'static str, stem: &str) -> Result<&Arc<Node>> {
        let host = self.map.as_ref().map(|map| map.host(slot(stem)));
        let found = match host {
            None => self.nodes.first(),
            Some(host) => self.nodes.iter().find(|node| host == Some(&*node.host)),
        };
        found.ok_or_else(|| {
            let why = match host.flatten() {
                Some(host) => format!("its master {host} cannot be reached"),
                None => "no master of the Cluster has its slot".to_owned(),
            };
            Error::new(ErrorKind::Unavailable, operation, stem, why)
        })
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

    /// The lengths of the values of some records; 0 for one that is not there.
    pub(crate) async fn lengths(&self, stem: &str, ids: &[(Id, u64)]) -> Result<Vec<usize>> {
        self.node("read", stem)?.lengths(stem, ids).await
    }

    /// Reads the values of some records, which weigh so much together; `None` for one that is not there.
    pub(crate) async fn values(&self, stem: &str, ids: &[&Id], weight: usize) -> Result<Vec<Option<Vec<u8>>>> {
        self.node("read", stem)?.values(stem, ids, weight).await
    }

    /// Listens to the changes of a scope, and returns once the server has confirmed it.
    pub(crate) async fn subscribe(&self, stem: &str) -> Result<Subscription> {
        self.node("watch", stem)?.subscribe(stem).await
    }

    /// Asks every server for an answer, and a Cluster whether its map is still the one in use.
    pub(crate) async fn ping(&self) -> Result<()> {
        try_join_all(self.nodes.iter().map(|node| node.ping())).await?;
        match (&self.map, self.nodes.first()) {
            (Some(map), Some(node)) => map.check(node).await,
            _ => Ok(()),
        }
    }

    /// The local address that the first server is reached from.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.nodes.first()?.source
    }
}
