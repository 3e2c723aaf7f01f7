//! Whether the server serves requests, and which version it has.

use std::{io, net::SocketAddr};

use super::ZooKeeper;
use crate::probe;

/// Tells whether the server serves requests; one without a leader answers with another text.
pub(super) async fn serves(server: SocketAddr) -> bool {
    let answer = probe::ask(server, b"srvr").await;
    answer.is_ok_and(|answer| String::from_utf8_lossy(&answer).contains("Mode: "))
}

impl ZooKeeper {
    /// Asks the server for its version, major and minor.
    ///
    /// # Errors
    ///
    /// The errors of a connection, and `InvalidData` when the server answers something else.
    ///
    /// # Cancel safety
    ///
    /// Nothing happens to the server.
    pub async fn version(&self) -> io::Result<(u32, u32)> {
        let answer = probe::ask(self.program.plain().address(), b"srvr").await?;
        let text = String::from_utf8_lossy(&answer);
        parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no version in {text:?}")))
    }
}

fn parse(answer: &str) -> Option<(u32, u32)> {
    let mut numbers = answer.strip_prefix("Zookeeper version: ")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse("Zookeeper version: 3.4.14-4c25d480e66aadd371de8bd2fd8da255ac140bcf, built on"), Some((3, 4)));
        assert_eq!(parse("This ZooKeeper instance is not currently serving requests"), None);
    }
}
