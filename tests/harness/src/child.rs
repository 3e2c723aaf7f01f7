//! A child process that can be signalled without hitting a stranger.

use std::{
    io,
    process::{Child, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    io::retry_on_intr,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
};

/// A child whose process id stays its own for as long as signals are sent.
///
/// An id is free for others once its process has been reaped, so signals and reaping exclude each other.
#[derive(Debug)]
pub(crate) struct OwnChild(Mutex<Child>);

impl OwnChild {
    pub(crate) fn new(child: Child) -> Self {
        Self(Mutex::new(child))
    }

    /// Returns how the process has ended, or `None` while it runs or is frozen.
    pub(crate) fn status(&self) -> io::Result<Option<ExitStatus>> {
        self.lock().try_wait()
    }

    /// Kills and reaps the process; does nothing more when it has ended already.
    pub(crate) fn kill(&self) -> io::Result<ExitStatus> {
        let mut child = self.lock();
        child.kill()?;
        child.wait()
    }

    /// Sends SIGTERM, and SIGCONT for the case that the process is frozen; does nothing when it has ended.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        let mut child = self.lock();
        if child.try_wait()?.is_none() {
            // Should it end between the two, it is not reaped yet, and the second signal is lost on it.
            kill_process(Pid::from_child(&child), Signal::TERM)?;
            kill_process(Pid::from_child(&child), Signal::CONT)?;
        }
        Ok(())
    }

    /// Sends SIGCONT.
    pub(crate) fn thaw(&self) -> io::Result<()> {
        send(&mut self.lock(), Signal::CONT)
    }

    /// Sends SIGSTOP and waits until all threads have stopped, which takes the kernel some microseconds.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        let mut child = self.lock();
        send(&mut child, Signal::STOP)?;
        // NOWAIT leaves the news in place, so that a second freeze sees it too and reaping stays with `Child`.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        match retry_on_intr(|| waitid(WaitId::Pid(Pid::from_child(&child)), options))? {
            Some(news) if news.stopped() => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "ended while it was being frozen")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Child> {
        // A panic under the lock would leave a child that can be signalled and reaped like any other.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn send(child: &mut Child, signal: Signal) -> io::Result<()> {
    match child.try_wait()? {
        None => Ok(kill_process(Pid::from_child(child), signal)?),
        Some(status) => Err(io::Error::new(io::ErrorKind::NotFound, format!("has ended ({status})"))),
    }
}
