//! The life of a server, whatever program it is.

use std::{
    fs, io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tempfile::TempDir;

use crate::{Program, ServerProcess};

/// A dozen ZooKeepers that start at once on two processors take some five seconds. One that ends instead is noticed at once, so the
/// rest of the time is only for a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Longer than the 7 s that etcd itself gives open streams before it ends without them; nobody else takes as long.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// What a server held when it was backed up. Its files are deleted with this value.
#[derive(Debug)]
pub struct Backup(TempDir);

/// A single server with its own ports, data and log, which ends with this value.
///
/// Its address stays the same through every stop and start. All methods take `&self`, so that a test can break the server from one
/// task and watch from others; of two concurrent starts the second fails.
#[derive(Debug)]
pub struct Server<P> {
    /// Replaced by each start; the first field, as it must be dropped before the program's folder and ports.
    process: Mutex<Arc<ServerProcess>>,
    pub(crate) program: P,
}

impl<P: Program> Server<P> {
    /// Tells whether everything that it needs is installed, and prints a line to stderr where it is not.
    ///
    /// # Errors
    ///
    /// `NotFound` where tests must not be skipped, as of [`available`](crate::available).
    pub fn available() -> io::Result<bool> {
        P::available()
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
        Self::start_with(P::Options::default()).await
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
    pub async fn start_with(options: P::Options) -> io::Result<Self> {
        let server = Self::launch(P::new(options)?)?;
        server.ready().await?;
        Ok(server)
    }

    /// Starts servers that need each other, and waits until each serves requests.
    pub(crate) async fn start_all(programs: Vec<P>) -> io::Result<Vec<Self>> {
        let servers = programs.into_iter().map(Self::launch).collect::<io::Result<Vec<_>>>()?;
        for server in &servers {
            server.ready().await?;
        }
        Ok(servers)
    }

    fn launch(program: P) -> io::Result<Self> {
        Ok(Self { process: Mutex::new(spawn(&program)?), program })
    }

    /// Returns the address for clients as `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.socket_address().to_string()
    }

    /// Returns the address for clients.
    pub fn socket_address(&self) -> SocketAddr {
        self.program.address()
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
        self.replace(|| remove(&self.program.wiped()))?;
        self.ready().await
    }

    /// Copies the data of a stopped server.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` when it is running, as its files would not fit together, and the errors of reading and writing files.
    pub fn back_up(&self) -> io::Result<Backup> {
        let process = self.lock();
        stopped::<P>(&process)?;
        let folder = TempDir::with_prefix("backup-")?;
        copy(&self.program.wiped(), folder.path())?;
        Ok(Backup(folder))
    }

    /// Starts a stopped server with the same ports and the data of a backup, and waits until it serves requests.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` when it is running, the errors of copying files, and the end of its log when it does not start.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call leaves a server that may not be ready yet.
    pub async fn start_from(&self, backup: &Backup) -> io::Result<()> {
        self.replace(|| {
            remove(&self.program.wiped())?;
            copy(backup.0.path(), &self.program.wiped())
        })?;
        self.ready().await
    }

    fn replace(&self, prepare: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut process = self.lock();
        stopped::<P>(&process)?;
        prepare()?;
        *process = spawn(&self.program)?;
        Ok(())
    }

    async fn ready(&self) -> io::Result<()> {
        self.process().ready(START_LIMIT, || self.program.serves()).await
    }

    /// The handle is shared so that a slow stop does not keep others from looking at the process.
    fn process(&self) -> Arc<ServerProcess> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<ServerProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stopped<P: Program>(process: &ServerProcess) -> io::Result<()> {
    if process.is_running() {
        let why = format!("{} is running: stop or kill it first", P::NAME);
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    Ok(())
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        // A server that has never come so far as to write any data.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        if entry.is_dir() {
            copy(&entry, &to)?;
        } else {
            fs::copy(&entry, &to)?;
        }
    }
    Ok(())
}

fn spawn<P: Program>(program: &P) -> io::Result<Arc<ServerProcess>> {
    Ok(Arc::new(ServerProcess::spawn(&program.command()?, &program.folder().join("log"))?))
}

/// The servers' addresses for clients as `127.0.0.1:port,127.0.0.1:port,…`.
pub(crate) fn addresses<P: Program>(servers: &[Server<P>]) -> String {
    servers.iter().map(Server::address).collect::<Vec<_>>().join(",")
}
