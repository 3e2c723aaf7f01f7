//! ZooKeeper's word of four letters.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Reading;
use crate::Result;

pub(crate) struct Words {
    server: SocketAddr,
    /// How often it was asked here, which the server counts too.
    asked: u64,
}

impl Words {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self { server, asked: 0 }
    }

    pub(super) async fn read(&mut self) -> Result<Reading> {
        let mut stream = TcpStream::connect(self.server).await?;
        stream.write_all(b"srvr").await?;
        let mut answer = String::new();
        stream.take(64 * 1024).read_to_string(&mut answer).await?;
        self.asked += 1;
        let field = |name: &str| {
            let value = answer.lines().find_map(|line| line.strip_prefix(name));
            value.ok_or_else(|| format!("no {name} in {answer:?}"))
        };
        let transactions = u64::from_str_radix(field("Zxid: 0x")?, 16)?;
        let received: u64 = field("Received: ")?.parse()?;
        Ok(Reading { writes: transactions, requests: received.saturating_sub(self.asked) })
    }
}
