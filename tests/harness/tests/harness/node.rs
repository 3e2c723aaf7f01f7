//! A node counts what it accepts, and is gone when it is killed.

use std::io;

use discovery_harness::{Listener, Node, Seat, Serve, refusing_address, settle, until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Says its name once the gate is open, and holds every connection.
#[derive(Clone, Default)]
struct Greeter;

impl Serve for Greeter {
    async fn serve(self, seat: Seat, listener: Listener) {
        let mut held = Vec::new();
        loop {
            let mut connection = listener.accept().await;
            seat.gate.opened().await;
            seat.count();
            if connection.write_all(seat.name.as_bytes()).await.is_ok() {
                held.push(connection);
            }
        }
    }
}

async fn first_letter(stream: &mut TcpStream) -> io::Result<String> {
    Ok(char::from(stream.read_u8().await?).to_string())
}

#[tokio::test]
async fn a_killed_node_closes_everything_and_comes_back_on_its_port() -> io::Result<()> {
    let mut node = Node::<Greeter>::start("a").await;
    let mut stream = TcpStream::connect(node.address()).await?;
    until("it is accepted", || node.accepted() == 1).await;
    assert_eq!((node.requests(), node.closed()), (0, 0));
    node.open_gate();
    assert_eq!(first_letter(&mut stream).await?, "a");

    node.kill().await;
    assert_eq!((node.requests(), node.closed()), (1, 1));
    assert!(stream.read_u8().await.is_err());
    assert!(TcpStream::connect(node.address()).await.is_err());

    node.restart().await;
    node.open_gate();
    settle(&["a"], 2, async || first_letter(&mut TcpStream::connect(node.address()).await?).await).await;
    assert_eq!(node.accepted(), 2);
    Ok(())
}

#[tokio::test]
async fn a_refusing_address_refuses() -> io::Result<()> {
    let address = refusing_address()?;
    assert_eq!(
        TcpStream::connect(address).await.map_err(|error| error.kind()).err(),
        Some(io::ErrorKind::ConnectionRefused)
    );
    Ok(())
}
