//! The registries that a bench runs on: single servers, and several that are one.

use async_trait::async_trait;
use discovery_harness::{
    Backup, Etcd, EtcdCluster, Program, Redis, RedisCluster, RedisSentinel, Server, ZooKeeper, ZooKeeperEnsemble,
};

use crate::Result;

/// A registry with its servers.
pub(crate) enum Store {
    Etcd(Etcd),
    EtcdCluster(EtcdCluster),
    ZooKeeper(ZooKeeper),
    ZooKeeperEnsemble(ZooKeeperEnsemble),
    Redis(Redis),
    RedisSentinel(RedisSentinel),
    RedisCluster(RedisCluster),
}

/// One server, whatever program it is.
#[async_trait]
pub(crate) trait Member: Send + Sync {
    fn address(&self) -> std::net::SocketAddr;
    fn back_up(&self) -> Result<Backup>;
    fn kill(&self) -> Result<()>;
    fn freeze(&self) -> Result<()>;
    fn thaw(&self) -> Result<()>;
    async fn stop(&self) -> Result<()>;
    async fn start_again(&self) -> Result<()>;
    async fn start_empty(&self) -> Result<()>;
    async fn start_from(&self, backup: &Backup) -> Result<()>;
}

#[async_trait]
impl<P: Program> Member for Server<P> {
    fn address(&self) -> std::net::SocketAddr {
        self.socket_address()
    }

    fn back_up(&self) -> Result<Backup> {
        Ok(self.back_up()?)
    }

    fn kill(&self) -> Result<()> {
        Ok(self.kill()?)
    }

    fn freeze(&self) -> Result<()> {
        Ok(self.freeze()?)
    }

    fn thaw(&self) -> Result<()> {
        Ok(self.thaw()?)
    }

    async fn stop(&self) -> Result<()> {
        Ok(self.stop().await?)
    }

    async fn start_again(&self) -> Result<()> {
        Ok(self.start_again().await?)
    }

    async fn start_empty(&self) -> Result<()> {
        Ok(self.start_empty().await?)
    }

    async fn start_from(&self, backup: &Backup) -> Result<()> {
        Ok(self.start_from(backup).await?)
    }
}

/// Every registry that a bench can be asked for.
pub(crate) const NAMES: [&str; 7] =
    ["etcd", "etcd-cluster", "zookeeper", "zookeeper-ensemble", "redis", "redis-sentinel", "redis-cluster"];

impl Store {
    /// Starts the one of this name; nothing where its server is not installed.
    pub(crate) async fn start(name: &str) -> Result<Option<Self>> {
        let there = match name {
            "etcd" | "etcd-cluster" => Etcd::available()?,
            "zookeeper" | "zookeeper-ensemble" => ZooKeeper::available()?,
            _ => Redis::available()?,
        };
        if !there {
            return Ok(None);
        }
        Ok(Some(match name {
            "etcd" => Self::Etcd(Etcd::start().await?),
            "etcd-cluster" => Self::EtcdCluster(EtcdCluster::start().await?),
            "zookeeper" => Self::ZooKeeper(ZooKeeper::start().await?),
            "zookeeper-ensemble" => Self::ZooKeeperEnsemble(ZooKeeperEnsemble::start().await?),
            "redis" => Self::Redis(Redis::start().await?),
            "redis-sentinel" => Self::RedisSentinel(RedisSentinel::start().await?),
            "redis-cluster" => Self::RedisCluster(RedisCluster::start().await?),
            _ => return Err(format!("there is no store {name}; known are: {}", NAMES.join(", ")).into()),
        }))
    }

    /// The servers that hold the data.
    pub(crate) fn members(&self) -> Vec<&dyn Member> {
        fn all<P: Program>(servers: &[Server<P>]) -> Vec<&dyn Member> {
            servers.iter().map(|server| server as &dyn Member).collect()
        }
        match self {
            Self::Etcd(server) => vec![server],
            Self::EtcdCluster(cluster) => all(cluster.members()),
            Self::ZooKeeper(server) => vec![server],
            Self::ZooKeeperEnsemble(ensemble) => all(ensemble.members()),
            Self::Redis(server) => vec![server],
            Self::RedisSentinel(pair) => all(pair.servers()),
            Self::RedisCluster(cluster) => all(cluster.servers()),
        }
    }

    /// Whether clients stay with the addresses that they are given, so that a proxy can stand between: the servers of Sentinels and
    /// Clusters of Redis tell their own.
    pub(crate) fn takes_proxies(&self) -> bool {
        !matches!(self, Self::RedisSentinel(_) | Self::RedisCluster(_))
    }

    /// The URL without options, of its own servers or of proxies in front of them.
    pub(crate) fn url(&self, proxies: Option<&str>, prefix: &str) -> String {
        let members = || self.members().iter().map(|member| member.address().to_string()).collect::<Vec<_>>().join(",");
        let hosts = proxies.map_or_else(members, str::to_owned);
        match self {
            Self::Etcd(_) | Self::EtcdCluster(_) => format!("etcd://{hosts}/{prefix}"),
            Self::ZooKeeper(_) | Self::ZooKeeperEnsemble(_) => format!("zookeeper://{hosts}/{prefix}"),
            Self::Redis(_) => format!("redis://{hosts}/{prefix}"),
            Self::RedisSentinel(pair) => format!("redis+sentinel://{}/{}/{prefix}", pair.addresses(), pair.name()),
            Self::RedisCluster(_) => format!("redis+cluster://{hosts}/{prefix}"),
        }
    }
}
