//! What a server runs.

use std::{
    fmt::Debug,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

/// What a [`Server`](crate::Server) runs: how a program is called with the ports and the folder that are reserved for it.
///
/// Implemented for each store here; tests call the server.
pub trait Program: Debug + Send + Sync + Sized + 'static {
    /// What it can be started with besides its addresses.
    type Options: Default + Send;

    /// Its name in messages.
    const NAME: &'static str;

    /// Tells whether the server and its client are installed, and prints a line to stderr where they are not.
    ///
    /// # Errors
    ///
    /// `NotFound` where tests must not be skipped, as of [`available`](crate::available).
    fn available() -> io::Result<bool>;

    /// Reserves ports and a folder, which it keeps through every start.
    ///
    /// # Errors
    ///
    /// The errors of reserving a port and making a folder.
    fn new(options: Self::Options) -> io::Result<Self>;

    /// Where it keeps its files, the log among them.
    fn folder(&self) -> &Path;

    /// Where it keeps its data.
    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// What is deleted for a start without data; it need not exist.
    fn wiped(&self) -> PathBuf {
        self.data()
    }

    /// Writes the files that it reads at its start, and returns the command.
    ///
    /// # Errors
    ///
    /// The errors of writing files.
    fn command(&self) -> io::Result<Command>;

    /// The address for clients.
    fn address(&self) -> SocketAddr;

    /// Tells whether it serves requests.
    fn serves(&self) -> impl Future<Output = bool> + Send;
}
