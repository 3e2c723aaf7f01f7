//! A server in a runtime of its own, so that it can be killed with everything it has open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use discovery_core::conformance::eventually;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::SOON;
use super::site::Site;

pub(crate) struct Node {
    name: String,
    address: SocketAddr,
    gate: watch::Sender<bool>,
    counts: Arc<Counts>,
    requests: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    closed: AtomicUsize,
}

/// Counts the end of a connection, however it comes.
struct Open(Arc<Counts>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Node {
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_with(name, "127.0.0.1:0", None).await
    }

    pub(crate) async fn start_tls(name: &str, config: ServerConfig) -> Self {
        Self::start_with(name, "127.0.0.1:0", Some(config)).await
    }

    pub(crate) async fn start_with(name: &str, address: &str, tls: Option<ServerConfig>) -> Self {
        let listener = bind(address).await;
        let address = listener.local_addr().unwrap();
        let (gate, gated) = watch::channel(false);
        let (counts, requests) = (Arc::<Counts>::default(), Arc::<AtomicUsize>::default());
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let site = Site { name: name.to_owned(), sni: None, gate: gated, requests: requests.clone() };
        runtime.spawn(accept(listener, site, counts.clone(), tls.map(|tls| TlsAcceptor::from(Arc::new(tls)))));
        Self { name: name.to_owned(), address, gate, counts, requests, runtime: Some(runtime) }
    }

    /// Starts anew on the same port.
    pub(crate) async fn restart(&mut self) {
        assert!(self.runtime.is_none(), "it was not killed");
        *self = Self::start_with(&self.name, &self.address.to_string(), None).await;
    }

    /// Ends it without a goodbye: listener, connections and calls. Connections are refused when this returns.
    pub(crate) async fn kill(&mut self) {
        self.end();
        eventually(SOON, &format!("{} refuses", self.name), async || match TcpStream::connect(self.address).await {
            Ok(_) => Err(()),
            Err(_) => Ok(()),
        })
        .await;
    }

    fn end(&mut self) {
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

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

async fn accept(listener: std::net::TcpListener, site: Site, counts: Arc<Counts>, tls: Option<TlsAcceptor>) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        counts.accepted.fetch_add(1, Ordering::SeqCst);
        let (mut site, open, tls) = (site.clone(), Open(counts.clone()), tls.clone());
        tokio::spawn(async move {
            match tls {
                // A handshake that fails is the client's to report.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        site.sni = stream.get_ref().1.server_name().map(str::to_owned);
                        serve(stream, site).await;
                    }
                }
                None => serve::<TcpStream>(stream, site).await,
            }
            drop(open);
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, site: Site) {
    let service = service_fn(move |request| site.clone().answer(request));
    // How a connection ends is up to the test.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// A port that was free a moment ago may still be held by what is just ending there.
async fn bind(address: &str) -> std::net::TcpListener {
    eventually(SOON, &format!("a listener at {address}"), async || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok::<_, std::io::Error>(listener)
    })
    .await
}
