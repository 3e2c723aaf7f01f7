//! An HTTP server that can be killed with everything it has open.

use std::sync::Arc;

use discovery_harness::{Listener, Seat, Serve};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::site::Site;

pub(crate) type Node = discovery_harness::Node<Web>;

/// Serves a [`Site`], with TLS or without.
#[derive(Clone, Default)]
pub(crate) struct Web(Option<Arc<ServerConfig>>);

pub(crate) async fn start_tls(name: &str, config: ServerConfig) -> Node {
    Node::start_with(name, "127.0.0.1:0", Web(Some(config.into()))).await
}

impl Serve for Web {
    async fn serve(self, seat: Seat, listener: Listener) {
        let tls = self.0.map(TlsAcceptor::from);
        loop {
            let stream = listener.accept().await;
            let (seat, tls) = (seat.clone(), tls.clone());
            tokio::spawn(async move {
                match tls {
                    // A handshake that fails is the client's to report.
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            let sni = stream.get_ref().1.server_name().map(str::to_owned);
                            converse(stream, Site { seat, sni }).await;
                        }
                    }
                    None => converse(stream, Site { seat, sni: None }).await,
                }
            });
        }
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(stream: S, site: Site) {
    let service = service_fn(move |request| site.clone().answer(request));
    // How a connection ends is up to the test.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
