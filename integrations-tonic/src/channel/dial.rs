//! One connection to one address, from the dial to the server's greeting.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tonic::body::Body;

use super::builder::Options;
use super::target::Target;

pub(super) type Sender = SendRequest<Body>;

/// Makes a connection that is ready for requests, within the connect timeout; otherwise says why not, with the address.
///
/// The second value is the connection's life: it ends when the connection does, or when all senders are gone and what they were given
/// is sent. Dropped, it takes no further request, but those in flight finish.
pub(super) async fn dial(
    target: &Target,
    options: &Options,
) -> Result<(Sender, impl Future<Output = ()> + Send + use<>), String> {
    let address = target.endpoint.authority();
    match tokio::time::timeout(options.connect_timeout, connect(target, options)).await {
        Ok(Ok((sender, connection))) => Ok((sender, async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
        })),
        Ok(Err(error)) => Err(format!("{address}: {error}")),
        Err(_) => Err(format!("{address}: no connection within {:?}", options.connect_timeout)),
    }
}

type Dialled = (Sender, Connection<TokioIo<Greeted>, Body, TokioExecutor>);

async fn connect(target: &Target, options: &Options) -> io::Result<Dialled> {
    let stream = open(target).await?;
    let stream = match &options.tls {
        None => stream,
        Some(files) => secure(files, target, stream).await?,
    };
    let (greet, greeting) = oneshot::channel();
    let io = TokioIo::new(Greeted { stream, greet: Some(greet), gathered: false });
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

/// Any connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

async fn open(target: &Target) -> io::Result<Box<dyn Io>> {
    let endpoint = &target.endpoint;
    if let Some(path) = endpoint.unix_path() {
        #[cfg(unix)]
        return Ok(Box::new(tokio::net::UnixStream::connect(path).await?));
        #[cfg(not(unix))]
        return Err(io::Error::other(format!("{path}: there are no Unix sockets on this system")));
    }
    let stream = TcpStream::connect((endpoint.host(), endpoint.port())).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// Shakes hands. The certificates are read for each connection, so that a rotated one is used.
#[cfg(feature = "tls")]
async fn secure(files: &discovery_core::TlsFiles, target: &Target, stream: Box<dyn Io>) -> io::Result<Box<dyn Io>> {
    use std::sync::Arc;
    use tokio_rustls::rustls::pki_types::ServerName;

    let name = ServerName::try_from(target.name.to_string())
        .map_err(|error| io::Error::other(format!("no certificate can have the name {:?}: {error}", target.name)))?;
    let files = files.clone();
    let read = tokio::task::spawn_blocking(move || files.read().and_then(|material| material.client_config()));
    let mut config = read.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Ok(Box::new(stream)),
        _ => Err(io::Error::other("the server does not offer HTTP/2 by ALPN, as gRPC over TLS needs it")),
    }
}

#[cfg(not(feature = "tls"))]
async fn secure(_: &discovery_core::TlsFiles, _: &Target, _: Box<dyn Io>) -> io::Result<Box<dyn Io>> {
    Err(io::Error::other("TLS is not compiled in; build discovery-tonic with the feature \"tls\""))
}

/// A stream that says when the server has spoken first.
///
/// The kernel accepts connections for a process that is stopped or still starting, and the HTTP/2 handshake does not wait for the
/// server's settings: without this, such a server would take requests that it never answers.
struct Greeted {
    stream: Box<dyn Io>,
    greet: Option<oneshot::Sender<()>>,
    /// Whether the writes since the last flush had their turn put off.
    gathered: bool,
}

impl Greeted {
    /// Puts the first write after a flush off until the tasks that are ready have run, so that what they send goes with it.
    fn gather(&mut self, cx: &Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.gathered, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
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
        ready!(self.gather(cx));
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.gather(cx));
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.gathered = false;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
