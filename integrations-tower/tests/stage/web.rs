//! An HTTP server that answers with its name, and can be killed with everything it has open.

use std::convert::Infallible;
use std::net::SocketAddr;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::HOST;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub(crate) struct Web {
    name: String,
    address: SocketAddr,
    /// The listener's task, which owns those of the connections.
    task: JoinSet<()>,
}

impl Web {
    pub(crate) async fn start(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(serve(listener, name.to_owned()));
        Self { name: name.to_owned(), address, task }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends listener and connections, and returns when they are closed.
    pub(crate) async fn kill(&mut self) {
        self.task.shutdown().await;
    }
}

async fn serve(listener: TcpListener, name: String) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let name = name.clone();
        connections.spawn(async move {
            let answer = service_fn(|request| answer(request, &name));
            // A client that goes away is none of the server's failures.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
        while connections.try_join_next().is_some() {}
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
