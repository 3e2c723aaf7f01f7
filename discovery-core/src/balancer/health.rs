//! Whether an instance may be picked: one bit for each who has a say, and failures in a row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use tokio::sync::watch;

use super::Outcome;

/// Who says that an instance should get no requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objection {
    /// Whoever keeps the connections has none.
    Unreachable = 1,
    /// An active health check failed.
    Unhealthy = 2,
    /// Its requests went wrong.
    Ejected = 4,
}

/// Tells the balancer's task that somebody's health changed, and how often it did.
#[derive(Debug, Clone)]
pub(super) struct Bell(Arc<watch::Sender<u64>>);

impl Bell {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(super) fn ring(&self) {
        self.0.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// How often it rang.
    pub(super) fn rings(&self) -> u64 {
        *self.0.borrow()
    }

    pub(super) fn listen(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// The health of one instance. Relaxed everywhere: a bit publishes nothing but itself.
#[derive(Debug)]
pub(super) struct Health {
    objections: AtomicU8,
    /// Failures since the last success, whether or not a connection was made.
    in_a_row: AtomicU32,
    /// After so many in a row, or the first without a connection, the ejector has to look.
    alarm: u32,
    bell: Bell,
}

impl Health {
    pub(super) fn new(alarm: u32, bell: Bell) -> Self {
        Self { objections: AtomicU8::new(0), in_a_row: AtomicU32::new(0), alarm, bell }
    }

    /// Whether nobody objects.
    #[inline]
    pub(super) fn is_good(&self) -> bool {
        self.objections.load(Ordering::Relaxed) == 0
    }

    pub(super) fn has(&self, objection: Objection) -> bool {
        self.objections.load(Ordering::Relaxed) & objection as u8 != 0
    }

    /// Raises or withdraws an objection, and tells the balancer if that is news.
    pub(super) fn set(&self, objection: Objection, raised: bool) {
        let bit = objection as u8;
        let before = if raised {
            self.objections.fetch_or(bit, Ordering::Relaxed)
        } else {
            self.objections.fetch_and(!bit, Ordering::Relaxed)
        };
        if (before & bit != 0) != raised {
            self.bell.ring();
        }
    }

    pub(super) fn in_a_row(&self) -> u32 {
        self.in_a_row.load(Ordering::Relaxed)
    }

    pub(super) fn forgive(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
    }

    /// Hears how a request ended.
    #[inline]
    pub(super) fn heard(&self, outcome: Outcome) {
        match outcome {
            // Reading first keeps the line shared while all is well.
            Outcome::Success if self.in_a_row.load(Ordering::Relaxed) != 0 => self.forgive(),
            Outcome::Success | Outcome::Cancelled => {}
            Outcome::Failure | Outcome::Unreachable => self.failed(outcome),
        }
    }

    #[cold]
    fn failed(&self, outcome: Outcome) {
        let failures = self.in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if outcome == Outcome::Unreachable || failures == self.alarm {
            self.bell.ring();
        }
    }
}
