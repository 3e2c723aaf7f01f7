//! How redis-server and redis-cli are called.

use std::{fs, io, net::SocketAddr, path::Path, process::Command};

use tempfile::TempDir;

use super::RedisOptions;
use crate::{Port, Program, available, free_port, probe};

/// How one Redis server is called, and where it keeps its files and listens.
#[derive(Debug)]
pub struct RedisProgram {
    folder: TempDir,
    client: Port,
    pub(super) tls: Port,
    options: RedisOptions,
}

impl Program for RedisProgram {
    type Options = RedisOptions;

    const NAME: &'static str = "Redis";

    fn available() -> io::Result<bool> {
        Ok(available("redis-server")? && available("redis-cli")?)
    }

    fn new(options: RedisOptions) -> io::Result<Self> {
        Ok(Self { folder: TempDir::with_prefix("redis-")?, client: free_port()?, tls: free_port()?, options })
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self) -> io::Result<Command> {
        // It does not make the folder itself.
        fs::create_dir_all(self.data())?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &self.client.number().to_string()]);
        command.arg("--dir").arg(self.data());
        // The log is written before the answer, so a kill loses nothing. Surviving a power cut is no matter for a test, and without
        // the waits a slow disk cannot make one fail.
        command.args(["--appendonly", "yes", "--appendfsync", "no", "--save", ""]);
        if self.options.tls {
            command.args(["--tls-port", &self.tls.number().to_string()]);
        }
        command.args(&self.options.args);
        Ok(command)
    }

    fn address(&self) -> SocketAddr {
        self.client.address()
    }

    /// Tells whether the server has loaded its data; one with a password answers that it wants to know it.
    async fn serves(&self) -> bool {
        let answer = probe::ask(self.address(), b"PING\r\nQUIT\r\n").await;
        answer.is_ok_and(|answer| answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH"))
    }
}

impl RedisProgram {
    pub(super) fn client_program(&self, args: &[&str]) -> Command {
        client(&self.client, args)
    }
}

/// The server's own client, which says by its exit status whether a command was refused.
pub(super) fn client(server: &Port, args: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    command.env_remove("REDISCLI_AUTH");
    command.args(["-h", "127.0.0.1", "-p", &server.number().to_string(), "-e"]).args(args);
    command
}
