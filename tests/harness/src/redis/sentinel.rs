//! A Redis master with a replica, watched by three Sentinels.

use std::{fs, io, time::Duration};

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{Redis, RedisOptions, program};
use crate::{Port, ServerProcess, free_port, tool};

/// Until replica and Sentinels know each other; about two seconds on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The name under which the Sentinels know the master.
const NAME: &str = "mymaster";

/// Two Redis servers and three Sentinels that make the replica the master within about three seconds of the master's end.
#[derive(Debug)]
pub struct RedisSentinel {
    sentinels: Vec<Sentinel>,
    servers: [Redis; 2],
}

#[derive(Debug)]
struct Sentinel {
    /// The first field, as it must end before its folder and its port.
    _process: ServerProcess,
    port: Port,
    _folder: TempDir,
}

impl RedisSentinel {
    /// Starts all five, and waits until a failover would succeed.
    ///
    /// # Errors
    ///
    /// The end of a log, when a server does not start, and `TimedOut` when they do not find each other within thirty seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call ends all servers.
    pub async fn start() -> io::Result<Self> {
        let master = Redis::start().await?;
        let port = master.socket_address().port().to_string();
        // By default a replica waits five seconds for others to join it.
        master.cli(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await?;
        let replica = Redis::start_with(RedisOptions::default().with_args(["--replicaof", "127.0.0.1", &port])).await?;
        let sentinels = (0..3).map(|_| Sentinel::start(&port)).collect::<io::Result<Vec<_>>>()?;
        let pair = Self { sentinels, servers: [master, replica] };
        let deadline = Instant::now() + START_LIMIT;
        while !pair.is_ready().await {
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the Sentinels did not find each other"));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(pair)
    }

    /// Returns the Sentinels' addresses as `127.0.0.1:port`, separated by commas.
    pub fn addresses(&self) -> String {
        self.sentinels.iter().map(|it| it.port.address().to_string()).collect::<Vec<_>>().join(",")
    }

    /// Returns the name of the master.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// Returns both servers; the first is the master at the beginning.
    pub fn servers(&self) -> &[Redis; 2] {
        &self.servers
    }

    /// Has each Sentinel obey a command.
    ///
    /// # Errors
    ///
    /// What the first of them says that does not.
    pub async fn cli(&self, args: &[&str]) -> io::Result<()> {
        for sentinel in &self.sentinels {
            let said = tool::run(program::client(&sentinel.port, args), b"").await?;
            if said.trim() != "OK" {
                return Err(io::Error::other(said));
            }
        }
        Ok(())
    }

    async fn is_ready(&self) -> bool {
        for sentinel in &self.sentinels {
            let known = tool::run(program::client(&sentinel.port, &["SENTINEL", "MASTER", NAME]), b"").await;
            let knows = |field: &str, value: &str| {
                known.as_ref().is_ok_and(|known| known.contains(&format!("\n{field}\n{value}\n")))
            };
            if !knows("num-slaves", "1") || !knows("num-other-sentinels", "2") || !knows("flags", "master") {
                return false;
            }
        }
        let replica = self.servers[1].cli(&["INFO", "replication"]).await;
        replica.is_ok_and(|it| it.contains("master_link_status:up"))
    }
}

impl Sentinel {
    fn start(master: &str) -> io::Result<Self> {
        let (folder, port) = (TempDir::with_prefix("redis-sentinel-")?, free_port()?);
        let configuration = folder.path().join("sentinel.conf");
        // A Sentinel writes what it learns into its configuration.
        fs::write(
            &configuration,
            format!(
                "port {}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {master} 2\n\
                 sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 3000\n",
                port.number()
            ),
        )?;
        let mut command = std::process::Command::new("redis-sentinel");
        command.arg(&configuration);
        let process = ServerProcess::spawn(&command, &folder.path().join("log"))?;
        Ok(Self { _process: process, port, _folder: folder })
    }
}
