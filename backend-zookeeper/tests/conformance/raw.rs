//! The tree past the code under test, as an operator's command line shows and changes it, by requests that every server since 3.4 knows.

use std::collections::BTreeMap;
use std::time::Duration;

use discovery_harness::ZooKeeper;
use futures_util::future::{join, join_all};
use zookeeper_client::{Acls, Client, CreateMode, Error, Stat};

/// Requests at once.
const BATCH: usize = 500;

/// The data of a node whose owner was superseded.
pub(crate) const SUPERSEDED: &[u8] = b"superseded";

/// A connection of our own; one for each question, so that no outage that a test makes has a past.
pub(crate) struct Raw(pub(crate) Client);

/// Every node but ZooKeeper's own, by path.
pub(crate) type Nodes = BTreeMap<String, (Vec<u8>, Stat)>;

impl Raw {
    pub(crate) async fn connect(server: &ZooKeeper) -> Self {
        // As patient as the server's longest session allows: what an operator does must not fail on a busy machine.
        let patient = Client::connector().with_session_timeout(Duration::from_secs(10));
        let patient = patient.with_connection_timeout(Duration::from_secs(6)).with_server_version(3, 4, 0);
        Self(patient.connect(&server.address()).await.expect("a raw client"))
    }

    /// Everything there is.
    pub(crate) async fn nodes(&self) -> Nodes {
        let (mut nodes, mut level) = (Nodes::new(), vec!["/".to_owned()]);
        while !level.is_empty() {
            let mut next = Vec::new();
            for page in level.chunks(BATCH) {
                let read = |path| join(self.0.get_data(path), self.0.list_children(path));
                let answers = join_all(page.iter().map(|path| read(path))).await;
                for (path, (data, children)) in page.iter().zip(answers) {
                    let base = if path == "/" { "" } else { path };
                    let children = children.unwrap_or_default();
                    next.extend(children.into_iter().map(|child| format!("{base}/{child}")));
                    match data {
                        Ok(found) => _ = nodes.insert(path.clone(), found),
                        Err(Error::NoNode | Error::NoAuth) => {}
                        Err(error) => panic!("a raw read of {path}: {error}"),
                    }
                }
            }
            level = next.into_iter().filter(|path| path != "/zookeeper").collect();
        }
        nodes
    }

    /// The nodes of one record: `{id}` and `{id}-{ten digits}`, the one that was created last at the end.
    pub(crate) async fn of(&self, key: &str) -> Vec<String> {
        let (base, id) = key.rsplit_once('/').unwrap();
        let names = match self.0.list_children(base).await {
            Ok(names) => names,
            Err(Error::NoNode) => return Vec::new(),
            Err(error) => panic!("a raw list of {base}: {error}"),
        };
        let mut found = Vec::new();
        for name in names {
            let rest = name.strip_prefix(id).unwrap_or("?");
            let sequence = rest.strip_prefix('-').is_some_and(|n| n.len() == 10 && n.parse::<u64>().is_ok());
            let path = format!("{base}/{name}");
            if !rest.is_empty() && !sequence {
                continue;
            }
            match self.0.get_data(&path).await {
                // A node that only tells its owner of a takeover is no record.
                Ok((data, _)) if data == SUPERSEDED => {}
                Ok((_, stat)) => found.push((stat.czxid, path)),
                Err(Error::NoNode) => {}
                Err(error) => panic!("a raw read of {path}: {error}"),
            }
        }
        found.sort();
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// Creates persistent nodes, or sets their data.
    pub(crate) async fn put(&self, records: Vec<(String, Vec<u8>)>) {
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let mut parents: Vec<_> = records.iter().map(|(key, _)| key.rsplit_once('/').unwrap().0).collect();
        parents.dedup();
        for parent in parents {
            self.0.mkdir(parent, &persistent).await.expect("a parent");
        }
        for page in records.chunks(BATCH) {
            let writes = page.iter().map(async |(key, value)| match self.0.create(key, value, &persistent).await {
                Err(Error::NodeExists) => self.0.set_data(key, value, None).await.map(drop),
                created => created.map(drop),
            });
            join_all(writes).await.into_iter().collect::<Result<(), _>>().expect("raw writes");
        }
    }

    pub(crate) async fn delete(&self, path: &str) {
        match self.0.delete(path, None).await {
            Ok(()) | Err(Error::NoNode) => {}
            Err(error) => panic!("a raw deletion of {path}: {error}"),
        }
    }
}
