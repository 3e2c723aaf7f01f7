//! The link between one handle and the in-memory store, and what can be wrong with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::{Error, ErrorKind, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    Cut,
    Stop,
    SwallowReplies,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    mode: Mode,
    /// Connections are numbered from 1; those up to this one are open and silent for ever.
    frozen: u64,
    delay: Duration,
}

/// The network between one handle and the store. Clones are the same link.
#[derive(Debug, Clone)]
pub struct MemoryLink(Arc<Inner>);

/// The counters are for tests alone and stand for themselves, so relaxed ordering suffices.
#[derive(Debug)]
struct Inner {
    state: watch::Sender<State>,
    connects: AtomicU64,
    /// The number of the connection in use; 0 if there is none.
    current: AtomicU64,
    received: AtomicU64,
}

impl MemoryLink {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            state: watch::Sender::new(State { mode: Mode::Pass, frozen: 0, delay: Duration::ZERO }),
            connects: AtomicU64::new(0),
            current: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }))
    }

    /// Everything works, except that a frozen connection stays frozen.
    pub fn pass(&self) {
        self.set(Mode::Pass);
        self.delay(Duration::ZERO);
    }

    /// Requests and answers each take this much longer.
    pub fn delay(&self, delay: Duration) {
        self.0.state.send_modify(|state| state.delay = delay);
    }

    /// Requests and subscriptions fail at once, and new connections are refused.
    pub fn cut(&self) {
        self.set(Mode::Cut);
    }

    /// The connection in use stays open and falls silent for ever; new ones work.
    pub fn freeze(&self) {
        let current = self.0.current.load(Ordering::Relaxed);
        self.0.state.send_modify(|state| state.frozen = current);
    }

    /// Nothing fails and nothing answers, new connections neither, as with a stopped server.
    pub fn stop(&self) {
        self.set(Mode::Stop);
    }

    /// Requests reach the store, answers do not come back.
    pub fn swallow_replies(&self) {
        self.set(Mode::SwallowReplies);
    }

    /// How many connections were attempted.
    pub fn connects(&self) -> u64 {
        self.0.connects.load(Ordering::Relaxed)
    }

    /// Whether a connection is in use.
    pub fn is_open(&self) -> bool {
        self.0.current.load(Ordering::Relaxed) > 0
    }

    /// How many bytes of keys and values came from the store.
    pub fn received(&self) -> u64 {
        self.0.received.load(Ordering::Relaxed)
    }

    pub(super) fn count_received(&self, bytes: usize) {
        self.0.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn open(&self) {
        let number = self.0.connects.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.current.store(number, Ordering::Relaxed);
    }

    pub(super) fn hang_up(&self) {
        self.0.current.store(0, Ordering::Relaxed);
    }

    /// Lets a request through to the store, once the link does; answers the connection that it went over.
    pub(super) async fn there(&self) -> Result<u64> {
        let connection = self.0.current.load(Ordering::Relaxed);
        self.until(connection, |mode| mode != Mode::Stop).await.map(|()| connection)
    }

    /// Lets an answer back over the connection of its request, once the link does.
    pub(super) async fn back(&self, connection: u64) -> Result<()> {
        self.until(connection, |mode| mode != Mode::SwallowReplies && mode != Mode::Stop).await
    }

    /// Returns when a subscription breaks.
    pub(super) async fn broken(&self) -> Error {
        let mut state = self.0.state.subscribe();
        // The sender lives in `self`, so waiting cannot fail; if it did, the link would be gone all the same.
        let _ = state.wait_for(|state| state.mode == Mode::Cut).await;
        refused()
    }

    fn set(&self, mode: Mode) {
        self.0.state.send_modify(|state| state.mode = mode);
    }

    async fn until(&self, connection: u64, through: impl Fn(Mode) -> bool) -> Result<()> {
        let mut state = self.0.state.subscribe();
        let delay = state.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let open =
            state.wait_for(|state| state.mode == Mode::Cut || (connection > state.frozen && through(state.mode)));
        match open.await.map(|state| state.mode) {
            Ok(Mode::Cut) | Err(_) => Err(refused()),
            Ok(_) => Ok(()),
        }
    }
}

fn refused() -> Error {
    Error::new(ErrorKind::Unavailable, "reach", "memory:", "the link is cut")
}
