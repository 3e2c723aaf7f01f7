//! The registries' servers, whichever it is.

use std::net::SocketAddr;

use discovery_harness::{Etcd, Redis, ZooKeeper};

use crate::Result;

/// A registry's server.
pub(crate) enum Store {
    Etcd(Etcd),
    ZooKeeper(ZooKeeper),
    Redis(Redis),
}

/// Starts those that are named, one after the other, or all that are installed, and plays something on each.
pub(crate) async fn each(stores: &[&str], mut play: impl AsyncFnMut(Store) -> Result<()>) -> Result<()> {
    let stores: Vec<_> = stores.iter().filter(|word| **word != "--store").collect();
    let wanted = |store: &str| stores.is_empty() || stores.iter().any(|name| **name == store);
    if let Some(unknown) = stores.iter().find(|name| !["etcd", "zookeeper", "redis"].contains(**name)) {
        return Err(format!("there is no store {unknown:?}; known are: etcd, zookeeper, redis").into());
    }
    if wanted("etcd") && Etcd::available()? {
        play(Store::Etcd(Etcd::start().await?)).await?;
    }
    if wanted("zookeeper") && ZooKeeper::available()? {
        play(Store::ZooKeeper(ZooKeeper::start().await?)).await?;
    }
    if wanted("redis") && Redis::available()? {
        play(Store::Redis(Redis::start().await?)).await?;
    }
    Ok(())
}

impl Store {
    /// Its name, which is the scheme of its URLs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Etcd(_) => "etcd",
            Self::ZooKeeper(_) => "zookeeper",
            Self::Redis(_) => "redis",
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Etcd(server) => server.socket_address(),
            Self::ZooKeeper(server) => server.socket_address(),
            Self::Redis(server) => server.socket_address(),
        }
    }

    /// Whether what a handle registered outlives a restart with the data, as long as the TTL has not passed.
    pub(crate) fn keeps_leases(&self) -> bool {
        !matches!(self, Self::Redis(_))
    }

    pub(crate) fn kill(&self) -> Result<()> {
        Ok(match self {
            Self::Etcd(server) => server.kill(),
            Self::ZooKeeper(server) => server.kill(),
            Self::Redis(server) => server.kill(),
        }?)
    }

    pub(crate) async fn start_again(&self) -> Result<()> {
        Ok(match self {
            Self::Etcd(server) => server.start_again().await,
            Self::ZooKeeper(server) => server.start_again().await,
            Self::Redis(server) => server.start_again().await,
        }?)
    }

    pub(crate) async fn start_empty(&self) -> Result<()> {
        Ok(match self {
            Self::Etcd(server) => server.start_empty().await,
            Self::ZooKeeper(server) => server.start_empty().await,
            Self::Redis(server) => server.start_empty().await,
        }?)
    }
}
