//! What a store has been asked for, by its own count.

mod etcd;
mod redis;
mod zookeeper;

use crate::Result;
use crate::store::Store;

/// What a store says that it has done since some moment before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Changes: etcd's revision, ZooKeeper's transactions, those of sessions and parents among them, and what Redis published of records.
    pub(crate) writes: u64,
    /// What its clients sent it, pings included.
    pub(crate) requests: u64,
}

impl Reading {
    pub(crate) fn since(self, before: Self) -> Self {
        Self { writes: self.writes - before.writes, requests: self.requests - before.requests }
    }
}

/// Reads a server's counts past everybody's way to it. It is made anew after each start of the server.
pub(crate) enum Meter {
    Etcd(etcd::Metrics),
    ZooKeeper(zookeeper::Words),
    Redis(redis::Monitor),
}

impl Meter {
    pub(crate) async fn of(store: &Store) -> Result<Self> {
        Ok(match store {
            Store::Etcd(_) => Self::Etcd(etcd::Metrics::new(store.address())),
            Store::ZooKeeper(_) => Self::ZooKeeper(zookeeper::Words::new(store.address())),
            Store::Redis(_) => Self::Redis(redis::Monitor::start(store.address()).await?),
        })
    }

    pub(crate) async fn read(&mut self) -> Result<Reading> {
        match self {
            Self::Etcd(metrics) => metrics.read().await,
            Self::ZooKeeper(words) => words.read().await,
            Self::Redis(monitor) => monitor.read(),
        }
    }

    /// How many requests had answers without a bound (L4), where the store tells.
    pub(crate) fn unbounded(&self) -> Option<u64> {
        match self {
            Self::Redis(monitor) => Some(monitor.unbounded()),
            _ => None,
        }
    }
}
