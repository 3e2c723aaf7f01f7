//! Talking to the server with its own client.

use std::io;

use super::Etcd;
use crate::tool;

impl Etcd {
    /// Runs `etcdctl` against the server, past any proxy, and returns its stdout.
    ///
    /// A further `--endpoints` among the arguments would not replace the server's but add to it.
    ///
    /// # Errors
    ///
    /// Its stderr, when it fails or does not end within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call kills `etcdctl`, which may or may not have reached the server.
    pub async fn ctl(&self, args: &[&str]) -> io::Result<String> {
        self.ctl_stdin(args, b"").await
    }

    /// Runs `etcdctl` with `input` on its stdin and returns its stdout; `put key` reads a long value from there.
    ///
    /// # Errors
    ///
    /// Its stderr, when it fails or does not end within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call kills `etcdctl`, which may or may not have reached the server.
    pub async fn ctl_stdin(&self, args: &[&str], input: &[u8]) -> io::Result<String> {
        tool::run(self.program.client_program(args), input).await
    }
}
