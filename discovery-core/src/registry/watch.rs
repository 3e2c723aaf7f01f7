//! A watch: the newest set of a service, whenever one asks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::watch;

use crate::snapshot::{Freshness, Snapshot, View};
use crate::{Error, ErrorKind, Result};

/// Keeps the shared feed of a watch alive, and names it in errors.
pub(crate) trait FeedHandle: Send + Sync {
    fn subject(&self) -> String;
}

type Waiting<V> = Pin<Box<dyn Future<Output = Option<watch::Receiver<Arc<V>>>> + Send + Sync>>;

/// A stream of sets that ends only when it is dropped or its backend is closed (W5).
///
/// It yields the full set first (W1) and then the newest set whenever the set or its freshness changed; whoever reads slowly skips
/// those in between (W3). Clones are independent readers of the same subscription (W7).
pub struct Watch<V: View = Snapshot> {
    feed: Arc<dyn FeedHandle>,
    receiver: watch::Receiver<Arc<V>>,
    waiting: Option<Waiting<V>>,
}

impl<V: View> Watch<V> {
    pub(crate) fn new(feed: Arc<dyn FeedHandle>, mut receiver: watch::Receiver<Arc<V>>) -> Self {
        receiver.mark_changed();
        Self { feed, receiver, waiting: None }
    }

    /// The newest set, `None` while none was read yet.
    pub fn latest(&self) -> Option<Arc<V>> {
        Some(self.receiver.borrow().clone()).filter(|view| !view.freshness().is_loading())
    }

    /// How far the newest set can be trusted, also while there is none.
    pub fn freshness(&self) -> Freshness {
        self.receiver.borrow().freshness().clone()
    }

    /// Waits for a set that this watch did not yield yet; `None` once the backend is closed.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call yields the newest set.
    pub async fn changed(&mut self) -> Option<Arc<V>> {
        self.waiting = None;
        next(&mut self.receiver).await
    }

    /// Waits until there is a set, live or stale, and returns it.
    ///
    /// # Errors
    /// `DeadlineExceeded` with the reason why there is none yet; `Closed` once the backend is closed.
    ///
    /// # Cancel safety
    /// Safe to drop at any time.
    pub async fn ready(&self, timeout: Duration) -> Result<Arc<V>> {
        let mut receiver = self.receiver.clone();
        let subject = self.feed.subject();
        let first = tokio::time::timeout(timeout, receiver.wait_for(|view| !view.freshness().is_loading()));
        match first.await {
            Ok(Ok(view)) => Ok(view.clone()),
            Ok(Err(_)) => Err(Error::closed("watch", subject)),
            Err(_) => {
                let why = match self.freshness().cause() {
                    Some(cause) => {
                        format!("no set within {timeout:?}; the last failure was: {cause}")
                    }
                    None => format!("no set within {timeout:?}"),
                };
                Err(Error::new(ErrorKind::DeadlineExceeded, "watch", subject, why))
            }
        }
    }

    /// Whether the backend was closed, so that no set will follow.
    pub fn is_closed(&self) -> bool {
        self.receiver.has_changed().is_err()
    }

    pub(crate) fn receiver(&self) -> watch::Receiver<Arc<V>> {
        self.receiver.clone()
    }
}

async fn next<V: View>(receiver: &mut watch::Receiver<Arc<V>>) -> Option<Arc<V>> {
    loop {
        receiver.changed().await.ok()?;
        let view = receiver.borrow_and_update().clone();
        if !view.freshness().is_loading() {
            return Some(view);
        }
    }
}

impl<V: View> Stream for Watch<V> {
    type Item = Arc<V>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Arc<V>>> {
        let this = &mut *self;
        let waiting = this.waiting.get_or_insert_with(|| {
            let mut receiver = this.receiver.clone();
            Box::pin(async move { next(&mut receiver).await.map(|_| receiver) })
        });
        match waiting.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                this.waiting = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some(mut receiver)) => {
                this.waiting = None;
                let view = receiver.borrow_and_update().clone();
                this.receiver = receiver;
                Poll::Ready(Some(view))
            }
        }
    }
}

impl<V: View> Clone for Watch<V> {
    fn clone(&self) -> Self {
        Self::new(self.feed.clone(), self.receiver.clone())
    }
}

impl<V: View> fmt::Debug for Watch<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("of", &self.feed.subject()).field("freshness", &self.freshness()).finish()
    }
}
