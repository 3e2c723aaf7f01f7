//! Loopback ports that belong to one holder on the whole machine.
//!
//! Binding port 0 and letting go leaves a gap in which anyone may get the same port.
//! Here a port is reserved by a lock on a file of its own, which the operating system drops with the process, so that tests in
//! many threads and processes never hand out the same one, and a killed test leaves nothing behind.

use std::{
    env, fs,
    fs::File,
    hash::{BuildHasher, RandomState},
    io, mem,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt::set_socket_reuseaddr},
    process::getuid,
};

/// Lies below the ports that operating systems give to outgoing connections (from 32768 on Linux).
///
/// Inside that range any client on the machine could take the port while its server is down, and a client that dials a closed
/// port could be given the very same port and be connected to itself.
const RANGE: Range<u16> = 20_000..32_000;

/// Counts the ports tried by this process, from a random start so that processes seldom meet.
///
/// Counting up means that a released port comes round again last: a client that still dials the address of a test that is over
/// must not reach the server of the next one.
static TRIED: LazyLock<AtomicU32> = LazyLock::new(|| {
    let [a, b, ..] = RandomState::new().hash_one(()).to_ne_bytes();
    AtomicU32::new(u32::from(u16::from_ne_bytes([a, b])))
});

/// A loopback port that no other `Port` on this machine has until this one is dropped.
///
/// Holders exclude each other as long as they run as the same user and share the temporary folder; anything else that listens
/// is noticed when the port is chosen, but may come later.
#[derive(Debug)]
pub struct Port {
    number: u16,
    lock: File,
}

/// Reserves a port of 127.0.0.1 on which nothing listens.
///
/// # Errors
///
/// `AddrInUse` when all ports are taken, and the errors of creating a lock file in the temporary folder.
pub fn free_port() -> io::Result<Port> {
    let folder = lock_folder()?;
    for _ in RANGE {
        let number = next();
        if let Some(lock) = try_lock(&folder, number)?
            && nobody_listens(number)?
        {
            return Ok(Port { number, lock });
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no free port in {RANGE:?}")))
}

/// Returns an address that refuses connections for as long as this process lives: a port that is merely free may be another test's server
/// a moment later.
///
/// # Errors
///
/// Those of [`free_port`].
pub fn refusing_address() -> io::Result<SocketAddr> {
    let port = free_port()?;
    let address = port.address();
    mem::forget(port);
    Ok(address)
}

impl Port {
    /// Returns the number of the port.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the port's address on 127.0.0.1.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Closing the file would not be enough: a child that another thread is just starting holds a copy of the descriptor until
        // its program runs. Should unlocking fail, closing still releases the port a moment later.
        flock(&self.lock, FlockOperation::Unlock).ok();
    }
}

fn next() -> u16 {
    let width = u32::from(RANGE.end - RANGE.start);
    // Relaxed suffices: the counter only spreads the attempts, the lock decides who owns a port.
    let offset = TRIED.fetch_add(1, Ordering::Relaxed) % width;
    RANGE.start + u16::try_from(offset).unwrap_or(0)
}

/// The user is part of the name because the files of one user cannot be opened by another.
fn lock_folder() -> io::Result<PathBuf> {
    let folder = env::temp_dir().join(format!("discovery-harness-ports-{}", getuid().as_raw()));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The files stay where they are: deleting one would let a second holder lock a new file of the same name.
fn try_lock(folder: &Path, number: u16) -> io::Result<Option<File>> {
    let file = File::options().create(true).append(true).open(folder.join(format!("{number}.lock")))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Binds without listening, which is refused where somebody listens: another thread may be starting a program, whose process holds a
/// copy of every socket between its fork and its exec, and a copy that listened would keep the holder of the port from it.
fn nobody_listens(number: u16) -> io::Result<bool> {
    let probe = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&probe, true)?;
    Ok(bind(&probe, &SocketAddr::from((Ipv4Addr::LOCALHOST, number))).is_ok())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_reserved_port_is_locked_and_a_used_one_is_noticed() -> io::Result<()> {
        let port = free_port()?;
        assert!(try_lock(&lock_folder()?, port.number())?.is_none());
        assert!(nobody_listens(port.number())?);
        let _listener = TcpListener::bind(port.address())?;
        assert!(!nobody_listens(port.number())?);
        Ok(())
    }
}
