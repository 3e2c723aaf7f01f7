//! One question to a server over a raw socket.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// A server that takes longer is asked again by the caller, on a new connection.
const LIMIT: Duration = Duration::from_secs(1);

/// More than any health answer has, so that a wrong server on the port cannot fill the memory.
const MAX_ANSWER: u64 = 64 * 1024;

/// Sends `question` and returns all that the server says until it closes the connection.
pub(crate) async fn ask(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let dialogue = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(question).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
        Ok(answer)
    };
    timeout(LIMIT, dialogue).await?
}
