//! One connection of a client through the proxy to the server.

use std::{io, net::SocketAddr, os::fd::AsFd, sync::Arc, time::Duration};

use rustix::net::sockopt::set_socket_linger;
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    time::Instant,
    try_join,
};

use super::{
    flow::{Direction, Flow},
    line::{Broken, Line, Parcel, Piece},
};

/// The most that is read at once, and so the most that is delayed as one.
const CHUNK: usize = 16 * 1024;

/// How many chunks wait in each direction; with more delay than a megabyte takes to arrive, the delay also limits the throughput.
const QUEUE: usize = 64;

/// A connection that the proxy has accepted and numbered.
#[derive(Debug)]
pub(super) struct Connection {
    line: Line,
    open: Open,
}

/// Counts a connection as open until its client has closed it or its task is no more.
#[derive(Debug)]
struct Open(Arc<Flow>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Connection {
    /// Counts a connection that has just come, or returns `None` when it is to be reset.
    pub(super) fn arrive(flow: &Arc<Flow>) -> Option<Self> {
        let number = flow.arrive()?;
        Some(Self { line: Line { flow: Arc::clone(flow), number }, open: Open(Arc::clone(flow)) })
    }

    /// Carries everything between the client and the server until both have ended; when it is dropped, both are reset.
    pub(super) async fn carry(self, client: TcpStream, server: SocketAddr) {
        let Self { line, open } = self;
        let (up, from_client) = channel(QUEUE);
        let back = up.clone();
        let reading = async {
            read(&client, &up).await;
            drop(open);
            Ok(())
        };
        // The client is read while the server is not dialled yet, so that one that leaves a frozen connection is noticed.
        if try_join!(reading, dial_and_carry(&line, &client, server, from_client, &back)).is_ok() {
            close_in_order(&client);
        }
    }
}

async fn dial_and_carry(
    line: &Line,
    client: &TcpStream,
    server: SocketAddr,
    from_client: Receiver<Parcel>,
    up: &Sender<Parcel>,
) -> Result<(), Broken> {
    // A frozen network would not let the first packet of a connection through either.
    line.permitted(Direction::Up, Instant::now()).await;
    let Ok(server) = dial(server).await else {
        line.permitted(Direction::Down, Instant::now()).await;
        return Err(Broken);
    };
    let (down, from_server) = channel(QUEUE);
    let reading = async {
        read(&server, &down).await;
        Ok(())
    };
    try_join!(
        line.write(Direction::Up, from_client, &server, &down),
        line.write(Direction::Down, from_server, client, up),
        reading,
    )?;
    close_in_order(&server);
    Ok(())
}

async fn dial(server: SocketAddr) -> io::Result<TcpStream> {
    let socket = match server {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Set before connecting, as the task may be aborted when the server has the connection and we have not heard of it yet.
    reset_on_close(&socket)?;
    socket.set_nodelay(true)?;
    socket.connect(server).await
}

/// Reads until the peer has ended, also when nobody takes the parcels any more.
async fn read(from: &TcpStream, parcels: &Sender<Parcel>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let piece = match from.readable().await.and_then(|()| from.try_read(&mut chunk)) {
            Ok(0) => Piece::End,
            Ok(count) => {
                chunk.truncate(count);
                Piece::Bytes(chunk)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => Piece::Reset,
        };
        let last = !matches!(piece, Piece::Bytes(_));
        parcels.send((Instant::now(), piece)).await.ok();
        if last {
            return;
        }
    }
}

/// Makes the socket send RST when it is closed, whichever way its task ends.
pub(super) fn reset_on_close(socket: impl AsFd) -> io::Result<()> {
    Ok(set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Undoes [`reset_on_close`], as RST would discard what the peer has not read yet.
fn close_in_order(socket: impl AsFd) {
    // Should it fail, the peer sees RST after an end that it has been sent; there is nobody to tell.
    set_socket_linger(socket, None).ok();
}
