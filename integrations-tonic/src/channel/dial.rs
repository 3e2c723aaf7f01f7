//! One connection to one address, from the dial to the server's greeting.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use discovery_core::Endpoint;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tonic::body::Body;

use super::builder::Options;

pub(super) type Sender = SendRequest<Body>;

/// Makes a connection that is ready for requests, within the connect timeout; otherwise says why not, with the address.
///
/// The second value is the connection's life: it ends when the connection does, or when all senders are gone and what they were given
/// is sent. Dropped, it takes no further request, but those in flight finish.
pub(super) async fn dial(
    endpoint: &Endpoint,
    options: &Options,
) -> Result<(Sender, impl Future<Output = ()> + Send + use<>), String> {
    match tokio::time::timeout(options.connect_timeout, connect(endpoint, options)).await {
        Ok(Ok((sender, connection))) => Ok((sender, async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
        })),
        Ok(Err(error)) => Err(format!("{}: {error}", endpoint.authority())),
        Err(_) => Err(format!("{}: no connection within {:?}", endpoint.authority(), options.connect_timeout)),
    }
}

type Dialled = (Sender, Connection<TokioIo<Greeted>, Body, TokioExecutor>);

async fn connect(endpoint: &Endpoint, options: &Options) -> io::Result<Dialled> {
    let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
    stream.set_nodelay(true)?;
    let (greet, greeting) = oneshot::channel();
    let io = TokioIo::new(Greeted { stream, greet: Some(greet) });
    // The executor runs what belongs to the connection; all of it ends with the connection.
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(options.keepalive_interval)
        .keep_alive_timeout(options.keepalive_timeout)
        .keep_alive_while_idle(true)
        .handshake(io)
        .await
        .map_err(io::Error::other)?;
    greeting.await.map_err(|_| io::Error::other("the server closed the connection without a greeting"))?;
    Ok((sender, connection))
}

/// A stream that says when the server has spoken first.
///
/// The kernel accepts connections for a process that is stopped or still starting, and the HTTP/2 handshake does not wait for the
/// server's settings: without this, such a server would take requests that it never answers.
struct Greeted {
    stream: TcpStream,
    greet: Option<oneshot::Sender<()>>,
}

impl AsyncRead for Greeted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before
            && let Some(greet) = self.greet.take()
        {
            // Nobody waits any more if the dial was given up, which closes this stream too.
            let _ = greet.send(());
        }
        polled
    }
}

impl AsyncWrite for Greeted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
