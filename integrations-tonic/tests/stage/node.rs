//! A server in a runtime of its own, so that it can be killed with everything it has open.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use super::{Hello, SOON};

pub(crate) struct Node {
    name: String,
    address: SocketAddr,
    gate: watch::Sender<bool>,
    counts: Arc<Counts>,
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    closed: AtomicUsize,
}

impl Node {
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_with(name, "127.0.0.1:0", Server::builder()).await
    }

    pub(crate) async fn start_with(name: &str, address: &str, mut server: Server) -> Self {
        let listener = bind(address).await;
        let address = listener.local_addr().unwrap();
        let (gate, gated) = watch::channel(false);
        let counts = Arc::new(Counts::default());
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let routes = server.add_service(Hello { name: name.to_owned(), gate: gated }.server());
        runtime.spawn({
            let counts = counts.clone();
            async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let incoming = futures_util::stream::unfold(listener, |listener| async {
                    let accepted = listener.accept().await.map(|(stream, _)| {
                        stream.set_nodelay(true).unwrap();
                        counts.accepted.fetch_add(1, Ordering::SeqCst);
                        Counted { stream, counts: counts.clone() }
                    });
                    Some((accepted, listener))
                });
                routes.serve_with_incoming(incoming).await.unwrap();
            }
        });
        Self { name: name.to_owned(), address, gate, counts, runtime: Some(runtime) }
    }

    /// Starts anew on the same port.
    pub(crate) async fn restart(&mut self) {
        assert!(self.runtime.is_none(), "it was not killed");
        *self = Self::start_with(&self.name, &self.address.to_string(), Server::builder()).await;
    }

    /// Ends it without a goodbye: listener, connections and calls.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    pub(crate) fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn closed(&self) -> usize {
        self.counts.closed.load(Ordering::SeqCst)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that was free a moment ago may still be held by what is just ending there.
async fn bind(address: &str) -> std::net::TcpListener {
    let end = Instant::now() + SOON;
    loop {
        match std::net::TcpListener::bind(address) {
            Ok(listener) => {
                listener.set_nonblocking(true).unwrap();
                return listener;
            }
            Err(error) => assert!(Instant::now() < end, "{address}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

struct Counted {
    stream: TcpStream,
    counts: Arc<Counts>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.closed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Connected for Counted {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
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
