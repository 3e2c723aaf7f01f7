//! The tree past the code under test, as an operator's command line shows and changes it.

use std::collections::BTreeMap;
use std::time::Duration;

use discovery_harness::ZooKeeper;
use futures_util::future::join_all;
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiReadResult, Stat};

/// Far below the requests that ZooKeeper refuses.
const BATCH: usize = 500_000;

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
        let patient = patient.with_connection_timeout(Duration::from_secs(6));
        Self(patient.connect(&server.address()).await.expect("a raw client"))
    }

    /// Everything there is.
    pub(crate) async fn nodes(&self) -> Nodes {
        let (mut nodes, mut level) = (Nodes::new(), vec!["/".to_owned()]);
        while !level.is_empty() {
            let mut next = Vec::new();
            for page in level.chunks(500) {
                let mut reader = self.0.new_multi_reader();
                for path in page {
                    reader.add_get_data(path).unwrap();
                    reader.add_get_children(path).unwrap();
                }
                let mut results = reader.commit().await.expect("a raw read").into_iter();
                for path in page {
                    let (data, children) = (results.next().unwrap(), results.next().unwrap());
                    if let MultiReadResult::Children { children } = children {
                        let base = if path == "/" { "" } else { path };
                        next.extend(children.into_iter().map(|child| format!("{base}/{child}")));
                    }
                    if let MultiReadResult::Data { data, stat } = data {
                        nodes.insert(path.clone(), (data, stat));
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
        let mut parents: Vec<_> = records.iter().map(|(key, _)| key.rsplit_once('/').unwrap().0).collect();
        parents.dedup();
        for parent in parents {
            self.0.mkdir(parent, &CreateMode::Container.with_acls(Acls::anyone_all())).await.expect("a parent");
        }
        let there = join_all(records.iter().map(|(key, _)| self.0.check_stat(key))).await;
        let (mut writer, mut bytes) = (self.0.new_multi_writer(), 0);
        for ((key, value), there) in records.iter().zip(there) {
            if there.unwrap().is_some() {
                writer.add_set_data(key, value, None).unwrap();
            } else {
                writer.add_create(key, value, &CreateMode::Persistent.with_acls(Acls::anyone_all())).unwrap();
            }
            bytes += key.len() + value.len();
            if bytes > BATCH {
                writer.commit().await.expect("raw writes");
                (writer, bytes) = (self.0.new_multi_writer(), 0);
            }
        }
        writer.commit().await.expect("raw writes");
    }

    pub(crate) async fn delete(&self, path: &str) {
        match self.0.delete(path, None).await {
            Ok(()) | Err(Error::NoNode) => {}
            Err(error) => panic!("a raw deletion of {path}: {error}"),
        }
    }
}
