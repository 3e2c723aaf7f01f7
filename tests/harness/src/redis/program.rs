//! How redis-server and redis-cli are called.

use std::{fs, io, path::PathBuf, process::Command};

use tempfile::TempDir;

use super::RedisOptions;
use crate::{Port, free_port};

/// Where one server keeps its files and listens.
#[derive(Debug)]
pub(super) struct Layout {
    folder: TempDir,
    pub(super) client: Port,
    pub(super) tls: Port,
}

impl Layout {
    pub(super) fn new() -> io::Result<Self> {
        let layout = Self { folder: TempDir::with_prefix("redis-")?, client: free_port()?, tls: free_port()? };
        fs::create_dir_all(layout.data())?;
        Ok(layout)
    }

    /// Deletes the data.
    pub(super) fn wipe(&self) -> io::Result<()> {
        fs::remove_dir_all(self.data())?;
        fs::create_dir_all(self.data())
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(super) fn server(&self, options: &RedisOptions) -> Command {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &self.client.number().to_string()]);
        command.arg("--dir").arg(self.data());
        // The log is written before the answer, so a kill loses nothing. Surviving a power cut is no matter for a test, and without
        // the waits a slow disk cannot make one fail.
        command.args(["--appendonly", "yes", "--appendfsync", "no", "--save", ""]);
        if options.tls {
            command.args(["--tls-port", &self.tls.number().to_string()]);
        }
        command.args(&options.args);
        command
    }

    pub(super) fn client_program(&self, args: &[&str]) -> Command {
        client(&self.client, args)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

/// The server's own client, which says by its exit status whether a command was refused.
pub(super) fn client(server: &Port, args: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    command.env_remove("REDISCLI_AUTH");
    command.args(["-h", "127.0.0.1", "-p", &server.number().to_string(), "-e"]).args(args);
    command
}
