//! How a balancer behaves.

use std::time::Duration;

use crate::clock::Clock;

/// Whether a set that does not follow the store any more is picked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StalePolicy {
    /// Pick from it, however old it is: instances outlive their registry more often than not.
    #[default]
    Serve,
    /// Refuse once it is older than this.
    RefuseAfter(Duration),
}

/// How a balancer behaves.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct BalancerOptions {
    /// Whether a stale set is picked from.
    pub stale: StalePolicy,
    /// The clock that pickers go by.
    pub clock: Clock,
}

impl BalancerOptions {
    /// Sets whether a stale set is picked from.
    #[must_use]
    pub fn with_stale(mut self, stale: StalePolicy) -> Self {
        self.stale = stale;
        self
    }

    /// Sets the clock that pickers go by.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}
