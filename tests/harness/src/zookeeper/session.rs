//! Ending a session from outside.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::ZooKeeper;

/// Longer than a healthy server takes by far.
const LIMIT: Duration = Duration::from_secs(5);

/// What ZooKeeper mixes into the passwords of sessions, which it makes from their ids.
const SECRET: i64 = 0xB341_5C00;

impl ZooKeeper {
    /// Ends a session as its owner's death does, at once: its ephemeral nodes are gone, and its owner is told that it expired.
    ///
    /// Returns whether the session was alive. Its owner may come in between, upon which the session lives on: repeat it until its nodes
    /// are gone.
    ///
    /// # Errors
    ///
    /// The errors of a connection, and `UnexpectedEof` when the server closes it without an answer.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call may have ended the session.
    pub async fn end_session(&self, id: i64) -> io::Result<bool> {
        end(self.socket_address(), id).await
    }
}

/// Connects with a session's id and password and closes it.
async fn end(server: SocketAddr, id: i64) -> io::Result<bool> {
    let dialogue = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(&questions(id)).await?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer).await {
            Err(error) if answer.is_empty() => return Err(error),
            _ => {}
        }
        // Length, protocol, timeout, and then the id, which is 0 for a session that the server does not know.
        let id = answer.get(12..20).and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes);
        id.map(|id| id != 0).ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up"))
    };
    timeout(LIMIT, dialogue).await?
}

/// A request to connect and one to close, each behind its length.
fn questions(id: i64) -> Vec<u8> {
    let mut connect = vec![0; 12]; // Version 0, and no transaction seen yet.
    connect.extend(10_000_i32.to_be_bytes());
    connect.extend(id.to_be_bytes());
    connect.extend(16_i32.to_be_bytes());
    connect.extend(password(id));
    connect.push(0);
    let mut close = Vec::from(1_i32.to_be_bytes());
    close.extend((-11_i32).to_be_bytes());
    let mut whole = Vec::new();
    for request in [connect, close] {
        whole.extend(u32::try_from(request.len()).unwrap_or(0).to_be_bytes());
        whole.extend(request);
    }
    whole
}

/// The bytes that Java's `Random` yields from the id and the secret.
fn password(id: i64) -> Vec<u8> {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = ((id ^ SECRET).cast_unsigned() ^ MULTIPLIER) & MASK;
    let mut bytes = Vec::new();
    for _ in 0..4 {
        seed = seed.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        let [.., a, b, c, d] = (seed >> 16).to_be_bytes();
        bytes.extend([d, c, b, a]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_javas() {
        // `new java.util.Random(42).nextBytes(…)` begins with these.
        assert_eq!(password(42 ^ SECRET)[..4], [53, 157, 65, 186]);
    }
}
