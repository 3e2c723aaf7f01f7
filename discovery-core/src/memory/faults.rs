//! The link between one handle and the in-memory store, and what can be wrong with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::{Error, ErrorKind, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    Cut,
    Freeze,
    SwallowReplies,
}

/// The network between one handle and the store. Clones are the same link.
#[derive(Debug, Clone)]
pub struct MemoryLink {
    mode: Arc<watch::Sender<Mode>>,
    /// Counted for tests alone, so any ordering does.
    connects: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
}

impl MemoryLink {
    pub(super) fn new() -> Self {
        Self { mode: Arc::new(watch::Sender::new(Mode::Pass)), connects: Arc::default(), requests: Arc::default() }
    }

    /// Everything works.
    pub fn pass(&self) {
        self.mode.send_replace(Mode::Pass);
    }

    /// Requests and subscriptions fail at once, and new connections are refused.
    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// Nothing fails and nothing answers, as with a stopped server.
    pub fn freeze(&self) {
        self.mode.send_replace(Mode::Freeze);
    }

    /// Requests reach the store, answers do not come back.
    pub fn swallow_replies(&self) {
        self.mode.send_replace(Mode::SwallowReplies);
    }

    /// How many connections were attempted.
    pub fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// How many requests were attempted, probes included.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn count_connect(&self) {
        self.connects.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets a request through to the store, once the link does.
    pub(super) async fn there(&self) -> Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.until(|mode| mode != Mode::Freeze).await
    }

    /// Lets an answer back, once the link does.
    pub(super) async fn back(&self) -> Result<()> {
        self.until(|mode| mode == Mode::Pass || mode == Mode::Cut).await
    }

    /// Returns when a subscription breaks.
    pub(super) async fn broken(&self) -> Error {
        let mut mode = self.mode.subscribe();
        // The sender lives in `self`, so waiting cannot fail; if it did, the link would be gone all the same.
        let _ = mode.wait_for(|mode| *mode == Mode::Cut).await;
        refused()
    }

    async fn until(&self, through: impl Fn(Mode) -> bool) -> Result<()> {
        let mut mode = self.mode.subscribe();
        match mode.wait_for(|mode| through(*mode)).await.map(|mode| *mode) {
            Ok(Mode::Cut) | Err(_) => Err(refused()),
            Ok(_) => Ok(()),
        }
    }
}

fn refused() -> Error {
    Error::new(ErrorKind::Unavailable, "reach", "memory:", "the link is cut")
}
