//! A server program as a child process.

use std::{
    io,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{child::OwnChild, log::Log, spawner};

/// How often a process is looked at while it ends or becomes ready.
const INTERVAL: Duration = Duration::from_millis(10);

/// A running server that ends with this value, and at the latest with the test process.
///
/// Dropping it kills and reaps the server, frozen or not; a panicking test prints the end of its log first.
/// Should the test process be killed, the kernel kills the server where util-linux's `setpriv` is installed.
/// Signals go to a child that has not been reaped, never to a process that has got its id since.
#[derive(Debug)]
pub struct ServerProcess {
    child: OwnChild,
    name: String,
    pid: u32,
    log: Log,
}

impl ServerProcess {
    /// Starts `command` with stdout and stderr appended to the file `log`, and nothing to read on stdin.
    ///
    /// Takes over program, arguments, environment changes and working directory of the command, but no other settings.
    ///
    /// # Errors
    ///
    /// `NotFound` when the program is not installed, and the errors of opening the log and starting a process.
    pub fn spawn(command: &Command, log: &Path) -> io::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut command = spawner::bound_to_this_process(command)?;
        let log = Log::new(log);
        let output = log.open()?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = spawner::spawn(command)?;
        Ok(Self { pid: child.id(), child: OwnChild::new(child), name, log })
    }

    /// Returns the process id, which may be in use by another process once the server has ended.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Tells whether the server has not ended; a frozen server is running.
    pub fn is_running(&self) -> bool {
        matches!(self.child.status(), Ok(None))
    }

    /// Kills the server with SIGKILL and reaps it; does nothing more when it has ended already.
    ///
    /// # Errors
    ///
    /// The errors of sending a signal to and waiting for a child.
    pub fn kill(&self) -> io::Result<ExitStatus> {
        self.named(self.child.kill())
    }

    /// Asks the server to end with SIGTERM and waits until it has; wakes a frozen one, which would not hear it.
    ///
    /// # Errors
    ///
    /// `TimedOut` when it runs on after `limit`; it is not killed then.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call has sent the signal and can be repeated.
    pub async fn terminate(&self, limit: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        self.named(self.child.terminate())?;
        loop {
            if let Some(status) = self.named(self.child.status())? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(self.error(io::ErrorKind::TimedOut, &format!("did not end within {limit:?} of SIGTERM")));
            }
            sleep(INTERVAL).await;
        }
    }

    /// Freezes the server with SIGSTOP; its sockets stay open, and none of its threads runs once this has returned.
    ///
    /// # Errors
    ///
    /// `NotFound` when it has ended.
    pub fn freeze(&self) -> io::Result<()> {
        self.named(self.child.freeze())
    }

    /// Lets a frozen server run on with SIGCONT.
    ///
    /// # Errors
    ///
    /// `NotFound` when it has ended.
    pub fn thaw(&self) -> io::Result<()> {
        self.named(self.child.thaw())
    }

    /// Returns the last lines that the server wrote, or why they cannot be read.
    pub fn log_tail(&self) -> String {
        self.log.tail()
    }

    /// Waits until `look` yields true.
    ///
    /// # Errors
    ///
    /// The end of the log, when the server has ended or is not ready within `limit`.
    pub(crate) async fn ready<L: Future<Output = bool>>(
        &self,
        limit: Duration,
        look: impl Fn() -> L,
    ) -> io::Result<()> {
        let deadline = Instant::now() + limit;
        while !look().await {
            if !self.is_running() {
                return Err(
                    self.error(io::ErrorKind::Other, &format!("ended instead of starting:\n{}", self.log_tail()))
                );
            }
            if Instant::now() > deadline {
                let why = format!("was not ready within {limit:?}:\n{}", self.log_tail());
                return Err(self.error(io::ErrorKind::TimedOut, &why));
            }
            sleep(INTERVAL).await;
        }
        Ok(())
    }

    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| self.error(error.kind(), &error.to_string()))
    }

    fn error(&self, kind: io::ErrorKind, what: &str) -> io::Error {
        io::Error::new(kind, format!("{} (process {}) {what}", self.name, self.pid))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the end of the log of {} (process {}):\n{}", self.name, self.pid, self.log_tail());
        }
        if let Err(error) = self.kill() {
            eprintln!("{} (process {}) may still run: {error}", self.name, self.pid);
        }
    }
}
