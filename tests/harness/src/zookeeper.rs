//! A single ZooKeeper server.

mod ensemble;
mod health;
mod options;
mod program;
mod session;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use self::program::Layout;
pub use self::{ensemble::ZooKeeperEnsemble, options::ZooKeeperOptions};
use crate::ServerProcess;

/// A start takes about 0.5 s on an idle machine; a dozen at once on two processors take ten times as long.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Longer than any server takes that is not frozen.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A single ZooKeeper server with its own ports, data and log, which ends with this value.
///
/// Its address stays the same through every stop and start. All methods take `&self`, so that a test can break the server from one
/// task and watch from others; of two concurrent starts the second fails.
#[derive(Debug)]
pub struct ZooKeeper {
    /// Replaced by each start; the first field, as it must be dropped before the folder and the ports.
    process: Mutex<Arc<ServerProcess>>,
    layout: Layout,
    options: ZooKeeperOptions,
    /// The number in an ensemble.
    member: Option<usize>,
}

impl ZooKeeper {
    /// Tells whether Java and ZooKeeper's jar are installed, and prints a line to stderr where they are not.
    ///
    /// The jar is Debian's, or what `DISCOVERY_ZOOKEEPER_CLASSPATH` names.
    ///
    /// # Errors
    ///
    /// `NotFound` where tests must not be skipped, as of [`available`](crate::available).
    pub fn available() -> io::Result<bool> {
        program::available()
    }

    /// Starts a server with the default options and waits until it serves requests.
    ///
    /// # Errors
    ///
    /// The end of its log, when it ends or does not answer within half a minute.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call ends the server.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(ZooKeeperOptions::default()).await
    }

    /// Starts a server with `options` and waits until it serves requests.
    ///
    /// # Errors
    ///
    /// The end of its log, when it ends or does not answer within half a minute.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call ends the server.
    pub async fn start_with(options: ZooKeeperOptions) -> io::Result<Self> {
        let server = Self::launch(Layout::new()?, options, None)?;
        server.ready().await?;
        Ok(server)
    }

    fn launch(layout: Layout, options: ZooKeeperOptions, member: Option<usize>) -> io::Result<Self> {
        let process = ServerProcess::spawn(&layout.server(&options, member)?, &layout.log())?;
        Ok(Self { process: Mutex::new(Arc::new(process)), layout, options, member })
    }

    /// Returns the address for clients as `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.socket_address().to_string()
    }

    /// Returns the address for clients.
    pub fn socket_address(&self) -> SocketAddr {
        self.layout.client.address()
    }

    /// Returns the process id of the server that was started last.
    pub fn pid(&self) -> u32 {
        self.process().pid()
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
    /// `TimedOut` when it runs on after 15 seconds.
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

    /// Starts a stopped server with the same ports and the same data, and waits until it serves requests.
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

    /// Starts a stopped server with the same ports and no data, and waits until it serves requests.
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
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "ZooKeeper is running: stop or kill it first"));
        }
        prepare()?;
        *process =
            Arc::new(ServerProcess::spawn(&self.layout.server(&self.options, self.member)?, &self.layout.log())?);
        Ok(())
    }

    async fn ready(&self) -> io::Result<()> {
        let server = self.layout.plain(&self.options);
        self.process().ready(START_LIMIT, || health::serves(server)).await
    }

    /// The handle is shared so that a slow stop does not keep others from looking at the process.
    fn process(&self) -> Arc<ServerProcess> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<ServerProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
