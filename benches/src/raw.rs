//! What a store holds, read and written past this project: by the store's own command-line client, or by the bare client library.

use std::time::Duration;

use discovery_harness::{Etcd, Redis};
use zookeeper_client::Client;

use crate::Result;
use crate::registry::Store;

/// Keys and values, in this order one each a line.
const REDIS_LIST: &str = "local found = {} for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
     found[#found + 1] = key found[#found + 1] = redis.call('GET', key) or '' end return found";

/// The keys of a service's records and their values.
pub(crate) type Records = Vec<(String, String)>;

/// A raw client of a store.
pub(crate) enum Raw<'a> {
    Etcd(&'a Etcd),
    ZooKeeper(Client),
    Redis(&'a Redis),
}

impl<'a> Raw<'a> {
    /// One that talks to a server that has all of a service's records.
    pub(crate) async fn open(store: &'a Store, prefix: &str, service: &str) -> Result<Self> {
        let first = |members: &'a [Etcd]| members.iter().find(|it| it.is_running()).ok_or("no member runs");
        Ok(match store {
            Store::Etcd(server) => Self::Etcd(server),
            Store::EtcdCluster(cluster) => Self::Etcd(first(cluster.members())?),
            Store::ZooKeeper(server) => Self::ZooKeeper(zookeeper(&server.address()).await?),
            Store::ZooKeeperEnsemble(ensemble) => Self::ZooKeeper(zookeeper(&ensemble.addresses()).await?),
            Store::Redis(server) => Self::Redis(server),
            Store::RedisSentinel(pair) => {
                let mut masters = Vec::new();
                for server in pair.servers() {
                    if server.cli(&["INFO", "replication"]).await.is_ok_and(|it| it.contains("role:master")) {
                        masters.push(server);
                    }
                }
                match masters[..] {
                    [master] => Self::Redis(master),
                    _ => return Err(format!("{} of the servers are masters", masters.len()).into()),
                }
            }
            Store::RedisCluster(cluster) => Self::Redis(cluster.master_of(&stem(prefix, service)).await?),
        })
    }

    /// All records of a service.
    pub(crate) async fn records(&self, prefix: &str, service: &str) -> Result<Records> {
        match self {
            Self::Etcd(server) => {
                let found = server.ctl(&["get", "--prefix", &format!("/{prefix}/{service}/")]).await?;
                Ok(pairs(&found))
            }
            Self::Redis(server) => {
                let pattern = format!("{}/*", stem(prefix, service));
                Ok(pairs(&server.cli(&["EVAL", REDIS_LIST, "0", &pattern]).await?))
            }
            Self::ZooKeeper(client) => {
                let base = format!("/{prefix}/{service}");
                let names = match client.list_children(&base).await {
                    Err(zookeeper_client::Error::NoNode) => return Ok(Vec::new()),
                    names => names?,
                };
                let mut found = Vec::new();
                for name in names {
                    let path = format!("{base}/{name}");
                    match client.get_data(&path).await {
                        Ok((data, _)) => found.push((path, String::from_utf8_lossy(&data).into_owned())),
                        Err(zookeeper_client::Error::NoNode) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(found)
            }
        }
    }
}

/// What the keys of a service's records on Redis begin with.
pub(crate) fn stem(prefix: &str, service: &str) -> String {
    format!("{{/{prefix}/{service}}}")
}

async fn zookeeper(hosts: &str) -> Result<Client> {
    let connected = tokio::time::timeout(Duration::from_secs(5), Client::connect(hosts)).await;
    Ok(connected.map_err(|_| "the raw client of ZooKeeper does not connect")??)
}

fn pairs(text: &str) -> Records {
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.chunks(2).map(|pair| (pair[0].to_owned(), pair.get(1).copied().unwrap_or_default().to_owned())).collect()
}
