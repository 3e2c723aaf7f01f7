//! A single Redis server; a pair under Sentinels and a Cluster are made of such.

mod cli;
mod cluster;
mod options;
mod program;
mod sentinel;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use self::program::Layout;
pub use self::{cluster::RedisCluster, options::RedisOptions, sentinel::RedisSentinel};
use crate::{ServerProcess, probe};

/// A start takes some 20 ms on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Longer than Redis takes to write its data and end.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A single Redis server with its own port, data and log, which ends with this value.
///
/// It writes every change to disk before it answers, so a crash loses nothing.
/// Its address stays the same through every stop and start. All methods take `&self`, so that a test can break the server from one
/// task and watch from others; of two concurrent starts the second fails.
#[derive(Debug)]
pub struct Redis {
    /// Replaced by each start; the first field, as it must be dropped before the folder and the port.
    process: Mutex<Arc<ServerProcess>>,
    layout: Layout,
    options: RedisOptions,
}

impl Redis {
    /// Starts a server with the default options and waits until it serves requests.
    ///
    /// # Errors
    ///
    /// The end of its log, when it ends or does not answer within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call ends the server.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(RedisOptions::default()).await
    }

    /// Starts a server with `options` and waits until it serves requests.
    ///
    /// # Errors
    ///
    /// The end of its log, when it ends or does not answer within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call ends the server.
    pub async fn start_with(options: RedisOptions) -> io::Result<Self> {
        let layout = Layout::new()?;
        let process = ServerProcess::spawn(&layout.server(&options), &layout.log())?;
        let redis = Self { process: Mutex::new(Arc::new(process)), layout, options };
        redis.ready().await?;
        Ok(redis)
    }

    /// Returns the address for clients as `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.socket_address().to_string()
    }

    /// Returns the address for clients.
    pub fn socket_address(&self) -> SocketAddr {
        self.layout.client.address()
    }

    /// Returns the address for clients with TLS, where the options say that there is one.
    pub fn tls_socket_address(&self) -> SocketAddr {
        self.layout.tls.address()
    }

    /// Tells whether the server has not ended; a frozen server is running.
    pub fn is_running(&self) -> bool {
        self.process().is_running()
    }

    /// Returns the last lines that the server wrote.
    pub fn log_tail(&self) -> String {
        self.process().log_tail()
    }

    /// Ends the server in order, with SIGTERM, also when it is frozen; does nothing when it has ended.
    ///
    /// # Errors
    ///
    /// `TimedOut` when it runs on after ten seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call has told the server to end and can be repeated.
    pub async fn stop(&self) -> io::Result<()> {
        self.process().terminate(STOP_LIMIT).await.map(drop)
    }

    /// Kills the server as a crash would, with SIGKILL.
    ///
    /// # Errors
    ///
    /// The errors of killing a child process.
    pub fn kill(&self) -> io::Result<()> {
        self.process().kill().map(drop)
    }

    /// Freezes the server: its sockets stay open and accept data, and nothing answers.
    ///
    /// # Errors
    ///
    /// `NotFound` when it is not running.
    pub fn freeze(&self) -> io::Result<()> {
        self.process().freeze()
    }

    /// Lets a frozen server run on.
    ///
    /// # Errors
    ///
    /// `NotFound` when it is not running.
    pub fn thaw(&self) -> io::Result<()> {
        self.process().thaw()
    }

    /// Starts a stopped server with the same port and the same data, and waits until it serves requests.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` when it is running, and the end of its log when it does not start.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call leaves a server that may not be ready yet.
    pub async fn start_again(&self) -> io::Result<()> {
        self.replace(|| Ok(()))?;
        self.ready().await
    }

    /// Starts a stopped server with the same port and no data, and waits until it serves requests.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` when it is running, and the end of its log when it does not start.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call leaves an empty server that may not be ready yet.
    pub async fn start_empty(&self) -> io::Result<()> {
        self.replace(|| self.layout.wipe())?;
        self.ready().await
    }

    fn replace(&self, prepare: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut process = self.lock();
        if process.is_running() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "Redis is running: stop or kill it first"));
        }
        prepare()?;
        *process = Arc::new(ServerProcess::spawn(&self.layout.server(&self.options), &self.layout.log())?);
        Ok(())
    }

    async fn ready(&self) -> io::Result<()> {
        let server = self.socket_address();
        self.process().ready(START_LIMIT, || serves(server)).await
    }

    /// The handle is shared so that a slow stop does not keep others from looking at the process.
    fn process(&self) -> Arc<ServerProcess> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<ServerProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells whether the server has loaded its data; one with a password answers that it wants to know it.
async fn serves(server: SocketAddr) -> bool {
    let answer = probe::ask(server, b"PING\r\nQUIT\r\n").await;
    answer.is_ok_and(|answer| answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH"))
}
