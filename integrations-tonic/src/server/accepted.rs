//! An accepted connection that can be closed from outside.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// A stream that fails once it is cut. tonic's connections run in tasks that nobody can end otherwise.
pub(super) struct Accepted {
    stream: TcpStream,
    /// Resolves at the cut; `None` afterwards.
    cut: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Accepted {
    pub(super) fn new(stream: TcpStream, mut cut: watch::Receiver<bool>) -> Self {
        let cut = Box::pin(async move {
            // An error means that the server was dropped, which cuts just as well.
            let _ = cut.wait_for(|cut| *cut).await;
        });
        Self { stream, cut: Some(cut) }
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(cut) = &mut self.cut {
            ready!(cut.as_mut().poll(cx));
            self.cut = None;
        }
        Poll::Ready(())
    }

    /// Whether the cut was seen by a read, which is always pending on a living connection.
    fn check(&self) -> io::Result<()> {
        if self.cut.is_some() { Ok(()) } else { Err(closed()) }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the server was stopped")
}

impl Connected for Accepted {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.poll_cut(cx).is_ready() {
            return Poll::Ready(Err(closed()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
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
