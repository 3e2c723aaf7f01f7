//! The bytes of one connection, which tell when the server spoke.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

/// Any connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// When the server was heard last.
#[derive(Debug)]
pub(super) struct Heard {
    since: Instant,
    /// Nanoseconds after `since`. Written by the connection's task and read by the same one, so relaxed ordering suffices.
    after: AtomicU64,
}

impl Heard {
    pub(super) fn last(&self) -> Instant {
        self.since + Duration::from_nanos(self.after.load(Ordering::Relaxed))
    }

    fn now(&self) {
        // 584 years fit.
        let after = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.after.store(after, Ordering::Relaxed);
    }
}

/// A stream under HTTP/2.
pub(super) struct Wire {
    stream: Box<dyn Io>,
    heard: Arc<Heard>,
    greeting: Option<Greeting>,
}

/// What the server says first: one frame, its settings.
struct Greeting {
    greet: oneshot::Sender<()>,
    /// The beginning of the frame's head, which is its length in three bytes.
    length: Vec<u8>,
    read: usize,
}

impl Greeting {
    /// Whether all of it is there with these bytes, too.
    fn is_whole_with(&mut self, bytes: &[u8]) -> bool {
        let missing = 3_usize.saturating_sub(self.length.len());
        self.length.extend(bytes.iter().take(missing));
        self.read += bytes.len();
        match self.length[..] {
            [high, middle, low] => self.read >= 9 + u32::from_be_bytes([0, high, middle, low]) as usize,
            _ => false,
        }
    }
}

impl Wire {
    /// The wire, what tells when the server was heard, and what resolves once it has spoken first.
    ///
    /// The kernel accepts connections for a process that is stopped or still starting, and the HTTP/2 handshake does not wait for the
    /// server's settings: without this, such a server would take requests that it never answers.
    pub(super) fn new(stream: Box<dyn Io>) -> (Self, Arc<Heard>, oneshot::Receiver<()>) {
        let (greet, greeting) = oneshot::channel();
        let heard = Arc::new(Heard { since: Instant::now(), after: AtomicU64::new(0) });
        let ours = Greeting { greet, length: Vec::new(), read: 0 };
        (Self { stream, heard: heard.clone(), greeting: Some(ours) }, heard, greeting)
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.heard.now();
            if let Some(greeting) = self.greeting.take_if(|it| it.is_whole_with(&buf.filled()[before..])) {
                // Nobody waits any more if the dial was given up, which closes this stream too.
                let _ = greeting.greet.send(());
            }
        }
        polled
    }
}

impl AsyncWrite for Wire {
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
