//! A server of the test's own, in a runtime of its own, so that it can be killed with everything it has open.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    sync::watch,
    task::spawn_blocking,
};

use crate::{SOON, eventually};

/// What runs on a [`Node`].
pub trait Serve: Clone + Send + 'static {
    /// Serves what comes to the listener, until it is ended.
    fn serve(self, seat: Seat, listener: Listener) -> impl Future<Output = ()> + Send;
}

/// A server in this process that can be killed and started anew on the same port. It ends with this value.
#[derive(Debug)]
pub struct Node<S> {
    service: S,
    seat: Seat,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl<S: Serve> Node<S> {
    /// Starts one on any port of 127.0.0.1.
    pub async fn start(name: &str) -> Self
    where
        S: Default,
    {
        Self::start_with(name, "127.0.0.1:0", S::default()).await
    }

    /// Starts one at this address.
    pub async fn start_with(name: &str, address: &str, service: S) -> Self {
        // A port that was free a moment ago may be that of somebody's outgoing connection by now.
        let listener =
            eventually(SOON, &format!("a listener at {address}"), async || std::net::TcpListener::bind(address)).await;
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let seat = Seat { name: name.to_owned(), gate: Gate::default(), counts: Arc::default() };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            // It belongs to the runtime in which it is made.
            let _entered = runtime.enter();
            Listener { inner: TcpListener::from_std(listener).unwrap(), counts: seat.counts.clone() }
        };
        runtime.spawn(service.clone().serve(seat.clone(), listener));
        Self { service, seat, address, runtime: Some(runtime) }
    }

    /// Starts anew on the same port.
    pub async fn restart(&mut self) {
        assert!(self.runtime.is_none(), "it was not killed");
        *self = Self::start_with(&self.seat.name, &self.address.to_string(), self.service.clone()).await;
    }
}

impl<S> Node<S> {
    /// Ends it without a goodbye: listener, connections and calls. All of them are closed when this returns.
    pub async fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            spawn_blocking(move || runtime.shutdown_timeout(SOON)).await.unwrap();
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.seat.name
    }

    /// Where it listens, or did before it was killed.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets everybody through who waits at the gate.
    pub fn open_gate(&self) {
        self.seat.gate.open();
    }

    /// How many connections it has accepted since its start.
    pub fn accepted(&self) -> usize {
        self.seat.counts.accepted.load(Ordering::SeqCst)
    }

    /// How many of them have ended, in whatever way.
    pub fn closed(&self) -> usize {
        self.seat.counts.closed.load(Ordering::SeqCst)
    }

    /// How many requests its service has counted.
    pub fn requests(&self) -> usize {
        self.seat.counts.requests.load(Ordering::SeqCst)
    }
}

impl<S> Drop for Node<S> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a service shares with the test.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The server's name.
    pub name: String,
    /// What the test opens.
    pub gate: Gate,
    counts: Arc<Counts>,
}

impl Seat {
    /// Counts a request.
    pub fn count(&self) {
        self.counts.requests.fetch_add(1, Ordering::SeqCst);
    }
}

/// Written by the node's tasks and read by the test.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicUsize,
    closed: AtomicUsize,
    requests: AtomicUsize,
}

/// Holds up whoever waits for it until it is opened, once for all.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// Opens it.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn opened(&self) {
        // The gate holds the sender, so the wait cannot fail.
        self.0.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

/// Accepts and counts.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
    counts: Arc<Counts>,
}

impl Listener {
    /// The next connection.
    pub async fn accept(&self) -> Connection {
        let (stream, _) = self.inner.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        self.counts.accepted.fetch_add(1, Ordering::SeqCst);
        Connection { stream, counts: self.counts.clone() }
    }
}

/// A connection whose end is counted, however it comes.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    counts: Arc<Counts>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.counts.closed.fetch_add(1, Ordering::SeqCst);
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
