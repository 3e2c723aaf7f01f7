//! A web server that says hello, as a process of its own.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::Result;

/// Serves until it is ended.
pub(crate) async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let hello = service_fn(|_: Request<_>| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
            });
            // A connection that breaks is its client's to notice.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), hello).await;
        });
    }
}

/// Passes everything on: the floor of what stands on reqwest-middleware.
pub(super) struct Pass;

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for Pass {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut hyper::http::Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        next.run(request, extensions).await
    }
}
