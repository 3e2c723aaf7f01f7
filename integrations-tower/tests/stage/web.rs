//! An HTTP server that answers with its name, and can be killed with everything it has open.

use std::convert::Infallible;

use discovery_harness::{Listener, Node, Seat, Serve};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::HOST;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

pub(crate) type Web = Node<Site>;

#[derive(Clone, Default)]
pub(crate) struct Site;

impl Serve for Site {
    async fn serve(self, seat: Seat, listener: Listener) {
        loop {
            let (stream, name) = (listener.accept().await, seat.name.clone());
            tokio::spawn(async move {
                let answer = service_fn(|request| answer(request, &name));
                // A client that goes away is none of the server's failures.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    }
}

/// `/` says the name, `/host` what the request calls the server, `/wait` nothing ever, everything else fails.
async fn answer(request: Request<Incoming>, name: &str) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match request.uri().path() {
        "/" => (StatusCode::OK, name.to_owned()),
        "/host" => (StatusCode::OK, request.headers()[HOST].to_str().unwrap().to_owned()),
        "/wait" => std::future::pending().await,
        _ => (StatusCode::INTERNAL_SERVER_ERROR, name.to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    Ok(response)
}
