//! Talking to the server with its own client.

use std::io;

use super::Redis;
use crate::tool;

impl Redis {
    /// Runs `redis-cli` against the server, past any proxy, and returns its stdout.
    ///
    /// # Errors
    ///
    /// Its stderr, when the command is refused, or when it does not end within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call kills `redis-cli`, which may or may not have reached the server.
    pub async fn cli(&self, args: &[&str]) -> io::Result<String> {
        self.cli_stdin(args, b"").await
    }

    /// Runs `redis-cli` with `input` on its stdin and returns its stdout; with `-x` the last argument of the command is read there.
    ///
    /// # Errors
    ///
    /// Its stderr, when the command is refused, or when it does not end within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call kills `redis-cli`, which may or may not have reached the server.
    pub async fn cli_stdin(&self, args: &[&str], input: &[u8]) -> io::Result<String> {
        tool::run(self.program.client_program(args), input).await
    }
}
