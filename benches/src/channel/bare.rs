//! A single HTTP/2 connection by hyper with nothing around it: the floor of what calls through one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::{Authority, Scheme, Uri};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::body::Body;

use crate::Result;

#[derive(Clone)]
pub(super) struct Bare {
    sender: SendRequest<Body>,
    authority: Authority,
}

impl Bare {
    pub(super) async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, authority: address.parse()? })
    }
}

impl tonic::codegen::Service<Request<Body>> for Bare {
    type Response = Response<Body>;
    type Error = crate::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        (parts.scheme, parts.authority) = (Some(Scheme::HTTP), Some(self.authority.clone()));
        let mut sender = self.sender.clone();
        Box::pin(async move {
            *request.uri_mut() = Uri::from_parts(parts)?;
            Ok(sender.send_request(request).await?.map(Body::new))
        })
    }
}
