//! When bytes last came: an answer may take as long as it is large, but silence has a limit, and so may have its size.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Duration, Instant, timeout_at};

/// When the other side was heard last, and how much it said.
pub(super) struct Progress {
    heard: Mutex<Instant>,
    /// Bytes since the last answer was understood. Only a bound on memory, so that relaxed ordering suffices.
    unread: AtomicUsize,
    most: usize,
}

impl Progress {
    /// Begins with a connection that is broken off once more than `most` bytes came without an answer that was understood.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { heard: Mutex::new(Instant::now()), unread: AtomicUsize::new(0), most })
    }

    fn heard(&self, bytes: usize) -> io::Result<()> {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.unread.fetch_add(bytes, Ordering::Relaxed);
        if self.is_flooded() { Err(io::Error::other("more came than was asked for")) } else { Ok(()) }
    }

    /// Notes that an answer was understood.
    pub(super) fn understood(&self) {
        self.unread.store(0, Ordering::Relaxed);
    }

    /// Whether it was broken off for what came.
    pub(super) fn is_flooded(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > self.most
    }

    fn last(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an answer until nothing at all has come for so long; `None` then.
    pub(super) async fn within<T>(&self, silence: Duration, answer: impl Future<Output = T>) -> Option<T> {
        let (asked, mut answer) = (Instant::now(), std::pin::pin!(answer));
        loop {
            let end = self.last().max(asked) + silence;
            match timeout_at(end, &mut answer).await {
                Ok(answer) => return Some(answer),
                Err(_) if self.last().max(asked) + silence <= end => return None,
                Err(_) => {}
            }
        }
    }
}

/// A stream that notes when it is heard.
pub(super) struct Observed<S> {
    stream: S,
    progress: Arc<Progress>,
}

impl<S> Observed<S> {
    pub(super) fn new(stream: S, progress: Arc<Progress>) -> Self {
        Self { stream, progress }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.progress.heard(buffer.filled().len() - before)?;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
