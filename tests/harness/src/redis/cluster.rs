//! A Redis Cluster of three masters.

use std::{io, process::Command, time::Duration};

use tokio::time::{Instant, sleep};

use super::{Redis, RedisOptions};
use crate::{Port, free_port, server, tool};

/// Until all servers agree on the slots; about three seconds on an idle machine, more with replicas.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Three masters that share the slots, and in a Cluster with replicas one replica of each.
///
/// A server counts as failed after a second; its replica takes over about two seconds later.
/// Without a replica its slots are served by nobody, and those of the others go on.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<Redis>,
    /// The ports on which the servers talk to each other.
    _buses: Vec<Port>,
}

impl RedisCluster {
    /// Starts three masters.
    ///
    /// # Errors
    ///
    /// The end of a log, when a server does not start, and `TimedOut` when they do not agree within thirty seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call ends all servers.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(0).await
    }

    /// Starts three masters and a replica of each.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Cancel safety
    ///
    /// A cancelled call ends all servers.
    pub async fn start_with_replicas() -> io::Result<Self> {
        Self::start_with(1).await
    }

    async fn start_with(replicas: usize) -> io::Result<Self> {
        let (mut servers, mut buses) = (Vec::new(), Vec::new());
        for _ in 0..3 * (1 + replicas) {
            let bus = free_port()?;
            let options = RedisOptions::default()
                .with_args(["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"])
                .with_args(["--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"])
                .with_args(["--cluster-port", &bus.number().to_string()]);
            servers.push(Redis::start_with(options).await?);
            buses.push(bus);
        }
        let mut command = Command::new("redis-cli");
        command.args(["--cluster", "create"]).args(servers.iter().map(Redis::address));
        command.args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"]);
        tool::run(command, b"").await?;
        let cluster = Self { servers, _buses: buses };
        let deadline = Instant::now() + START_LIMIT;
        while !cluster.is_ready(replicas).await {
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the servers of the Cluster did not agree"));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(cluster)
    }

    /// Returns all servers' addresses as `127.0.0.1:port`, separated by commas.
    pub fn addresses(&self) -> String {
        server::addresses(&self.servers)
    }

    /// Returns all servers; the first three are the masters at the beginning.
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// Returns the master that has the slot of a key, as the first server that answers sees it.
    ///
    /// # Errors
    ///
    /// `NotFound` when no server answers or nobody has the slot.
    pub async fn master_of(&self, key: &str) -> io::Result<&Redis> {
        let none = || io::Error::new(io::ErrorKind::NotFound, format!("no master has the slot of {key}"));
        for server in self.servers.iter().filter(|server| server.is_running()) {
            let Ok(slot) = server.cli(&["CLUSTER", "KEYSLOT", key]).await else { continue };
            let slot: u16 = slot.trim().parse().map_err(|_| none())?;
            let map = server.cli(&["CLUSTER", "NODES"]).await?;
            let owner = map.lines().find(|line| {
                let words: Vec<_> = line.split(' ').collect();
                words.get(2).is_some_and(|flags| flags.contains("master") && !flags.contains("fail"))
                    && words.iter().skip(8).any(|range| holds(range, slot))
            });
            let port = owner.and_then(|line| line.split([':', '@']).nth(1)).ok_or_else(none)?;
            return self.servers.iter().find(|it| it.address().ends_with(&format!(":{port}"))).ok_or_else(none);
        }
        Err(none())
    }

    async fn is_ready(&self, replicas: usize) -> bool {
        for server in &self.servers {
            let Ok(info) = server.cli(&["CLUSTER", "INFO"]).await else { return false };
            let known = format!("cluster_known_nodes:{}", self.servers.len());
            if !info.contains("cluster_state:ok") || !info.contains(&known) {
                return false;
            }
            let Ok(role) = server.cli(&["INFO", "replication"]).await else { return false };
            let synchronised = role.contains("master_link_status:up");
            let served = role.contains("role:master") && role.contains(&format!("connected_slaves:{replicas}"));
            if !synchronised && !served {
                return false;
            }
        }
        true
    }
}

/// Whether a word of `CLUSTER NODES`, such as `0-5460` or `7`, has a slot.
fn holds(range: &str, slot: u16) -> bool {
    let (from, upto) = range.split_once('-').unwrap_or((range, range));
    matches!((from.parse::<u16>(), upto.parse::<u16>()), (Ok(from), Ok(upto)) if (from..=upto).contains(&slot))
}
