//! The listening side of the proxy.

use std::{
    future::poll_fn,
    io,
    io::ErrorKind,
    mem, net,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::net::{Shutdown, shutdown};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

use super::{
    connection::{Connection, reset_on_close},
    flow::Flow,
};

/// How soon accepting is tried again after an error that a repetition at once would only meet again.
const RETRY: Duration = Duration::from_millis(10);

/// An open gate: a listener, the task that accepts, and the connections that came in; dropping it ends them all.
#[derive(Debug)]
pub(super) struct Gate {
    /// Holds a single task; a set because it aborts the task when dropped.
    acceptor: JoinSet<()>,
    entrance: Arc<Entrance>,
}

#[derive(Debug)]
struct Entrance {
    listener: TcpListener,
    /// The same socket, asked directly: the runtime hears of a new connection only when it polls.
    kernel: net::TcpListener,
    server: SocketAddr,
    flow: Arc<Flow>,
    /// Locked while connections are accepted and numbered, so that whoever has had the lock has seen all that had come.
    connections: Mutex<JoinSet<()>>,
}

impl Gate {
    pub(super) fn open(address: SocketAddr, server: SocketAddr, flow: Arc<Flow>) -> io::Result<Self> {
        let kernel = net::TcpListener::bind(address)?;
        kernel.set_nonblocking(true)?;
        let listener = TcpListener::from_std(kernel.try_clone()?)?;
        let connections = Mutex::default();
        let entrance = Arc::new(Entrance { listener, kernel, server, flow, connections });
        let mut acceptor = JoinSet::new();
        acceptor.spawn(accept(Arc::clone(&entrance)));
        Ok(Self { acceptor, entrance })
    }

    /// Admits the connections that clients have made and the acceptor has not seen yet.
    pub(super) fn admit_waiting(&self) {
        self.entrance.admit_waiting();
    }

    /// Resets all connections.
    pub(super) async fn reset_all(&self) {
        let mut connections = mem::take(&mut *self.entrance.connections());
        connections.shutdown().await;
    }

    /// Closes the listener.
    pub(super) async fn close(mut self) {
        // The acceptor shares the listener, so it must be gone before dropping our half closes it.
        self.acceptor.shutdown().await;
        // Another thread may be starting a program, whose process holds a copy of every socket between its fork and its exec. Closing
        // our copies would leave the port open for that moment; this ends the listening itself.
        let _ended = shutdown(&self.entrance.kernel, Shutdown::Both);
    }
}

impl Entrance {
    fn admit_waiting(&self) {
        let mut connections = self.connections();
        loop {
            match self.kernel.accept().and_then(|(client, _)| into_tokio(client)) {
                Ok(client) => self.admit(&mut connections, client),
                Err(error) if concerns_one_client(&error) => {}
                // All have been accepted, or the acceptor will meet the same error and try again.
                Err(_) => return,
            }
        }
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Error> {
        let mut connections = self.connections();
        loop {
            match ready!(self.listener.poll_accept(context)) {
                Ok((client, _)) => self.admit(&mut connections, client),
                Err(error) if concerns_one_client(&error) => {}
                Err(error) => return Poll::Ready(error),
            }
        }
    }

    fn admit(&self, connections: &mut JoinSet<()>, client: TcpStream) {
        while connections.try_join_next().is_some() {}
        // Set before the connection has a task, as a task may be aborted before it has run at all.
        // An option that fails tells that the client has left already.
        let prepared = reset_on_close(&client).and_then(|()| client.set_nodelay(true));
        if let Some(connection) = Connection::arrive(&self.flow)
            && prepared.is_ok()
        {
            connections.spawn(connection.carry(client, self.server));
        }
    }

    fn connections(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(entrance: Arc<Entrance>) {
    loop {
        // The process has too many open files, most likely; some may be closed soon.
        let _error = poll_fn(|context| entrance.poll_accept(context)).await;
        sleep(RETRY).await;
    }
}

fn into_tokio(client: net::TcpStream) -> io::Result<TcpStream> {
    client.set_nonblocking(true)?;
    TcpStream::from_std(client)
}

/// That client has left before it was accepted; there may be others behind it.
fn concerns_one_client(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}
