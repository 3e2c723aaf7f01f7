//! The nodes of one id: asking for them, and the single steps of writing and removing.

use discovery_core::Key;
use zookeeper_client::{Client, CreateMode, Error as ClientError, Stat};

use crate::connection::{Live, Written};
use crate::load::{Found, list, read};
use crate::own;
use crate::tree::{SUPERSEDED, Tree, id_of, is_record, name_of, session_of};

/// Where the nodes of one id are, and who is asking.
pub(crate) struct Place<'a> {
    live: &'a Live,
    tree: &'a Tree,
    key: &'a Key,
    /// The node that holds the service's records.
    base: String,
    /// The node of the record if it was put by hand; the nodes of ours have a sequence behind it.
    path: String,
}

/// A node of the id, whoever's it is.
pub(crate) struct Sibling {
    pub(crate) path: String,
    /// `None` for one that is nobody's.
    pub(crate) session: Option<i64>,
    pub(crate) created: i64,
    pub(crate) version: i32,
    /// Whether its owner was told that somebody newer took over.
    pub(crate) superseded: bool,
}

/// A node as it was written.
pub(crate) struct Node {
    pub(crate) path: String,
    pub(crate) stat: Stat,
}

impl<'a> Place<'a> {
    pub(crate) fn new(live: &'a Live, tree: &'a Tree, key: &'a Key) -> Self {
        Self { live, tree, key, base: tree.service(&key.service), path: tree.record(key) }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn session(&self) -> i64 {
        self.client().session_id().0
    }

    fn client(&self) -> &Client {
        &self.live.client
    }

    /// The nodes of the id that hang on our session.
    pub(crate) async fn own(&self) -> Result<Vec<String>, ClientError> {
        own::of_key(self.live, self.tree, self.key).await
    }

    /// Whether an operator has put a record over ours.
    pub(crate) async fn is_by_hand(&self) -> Result<bool, ClientError> {
        let stat = self.client().check_stat(&self.path).await?;
        Ok(stat.is_some_and(|stat| is_record(&stat) && session_of(&stat).is_none()))
    }

    /// All nodes of the id, and whether there are others that may not be read. It costs the names of the service's records, and the data of
    /// these.
    pub(crate) async fn siblings(&self) -> Result<(Vec<Sibling>, bool), ClientError> {
        let id = name_of(&self.path);
        let names = list(self.live, &self.base).await?.map_or_else(Vec::new, |(names, _)| names);
        let paths: Vec<_> =
            names.iter().filter(|name| id_of(name) == id).map(|name| format!("{}/{name}", self.base)).collect();
        let found = read(self.live, &paths).await?;
        let (mut siblings, mut hidden) = (Vec::new(), false);
        for (path, found) in paths.into_iter().zip(found) {
            let (stat, superseded) = match found {
                Found::Record(_, stat) => (stat, false),
                Found::Superseded(stat) => (stat, true),
                Found::Parent | Found::Gone => continue,
                Found::Denied => {
                    hidden = true;
                    continue;
                }
            };
            let (session, created, version) = (session_of(&stat), stat.czxid, stat.version);
            siblings.push(Sibling { path, session, created, version, superseded });
        }
        Ok((siblings, hidden))
    }

    /// Makes a node that is newer than all others.
    pub(crate) async fn create(&self, value: &[u8]) -> Result<Node, ClientError> {
        let prefix = format!("{}-", self.path);
        let options = CreateMode::EphemeralSequential.with_acls(self.tree.acls());
        let mut created = self.client().create(&prefix, value, &options).await;
        if created == Err(ClientError::NoNode) {
            self.tree.make_parents(self.live, &self.base).await?;
            created = self.client().create(&prefix, value, &options).await;
        }
        let (mut stat, sequence) = created?;
        let path = format!("{prefix}{sequence}");
        if !self.live.server.describes_created() {
            stat = self.client().check_stat(&path).await?.ok_or(ClientError::NoNode)?;
            // Whatever was written since is not ours.
            (stat.mzxid, stat.version) = (stat.czxid, 0);
        }
        Ok(Node { path, stat })
    }

    /// Sets a node's data, unless somebody else has set them since.
    pub(crate) async fn set(&self, path: String, version: i32, value: &[u8]) -> Result<Node, ClientError> {
        self.client().set_data(&path, value, Some(version)).await.map(|stat| Node { path, stat })
    }

    /// Sets the data of the node that was written last.
    pub(crate) async fn set_known(&self, known: Option<Written>, value: &[u8]) -> Option<Node> {
        let known = known?;
        self.set(known.path, known.version, value).await.ok()
    }

    /// Removes the node that was written last, unless somebody else has written it since.
    pub(crate) async fn delete_known(&self, known: Option<Written>) -> Option<()> {
        let known = known?;
        self.client().delete(&known.path, Some(known.version)).await.ok()
    }

    /// Tells the owner of a node that it was superseded, in a way that lasts as long as its session.
    pub(crate) async fn supersede(&self, path: &str) -> Result<(), ClientError> {
        match self.client().set_data(path, SUPERSEDED, None).await {
            Ok(_) | Err(ClientError::NoNode) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), ClientError> {
        delete(self.client(), path).await
    }
}

/// Deletes a node; that it is gone already is as good.
pub(crate) async fn delete(client: &Client, path: &str) -> Result<(), ClientError> {
    match client.delete(path, None).await {
        Err(ClientError::NoNode) => Ok(()),
        answer => answer,
    }
}
