//! How a balancer behaves.

use std::time::Duration;

use super::filter::Filter;
use super::outlier::Outliers;
use super::plan::PANIC_THRESHOLD;
use super::priority::Priorities;
use super::slow_start::SlowStart;
use super::zone::Zone;
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

/// How a balancer behaves. Everything works around any picker and together with everything else.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BalancerOptions {
    /// Whether a stale set is picked from.
    pub stale: StalePolicy,
    /// The clock that pickers go by. Slow start and ejections go by Tokio's.
    pub clock: Clock,
    /// What an instance has to meet to get requests at all. None by default.
    pub filters: Vec<Filter>,
    /// The caller's zone, if its instances come first.
    pub zone: Option<Zone>,
    /// Which instances come first, if not all are alike. Zones count within a priority.
    pub priorities: Option<Priorities>,
    /// Whether and how newcomers get their share gradually (P7).
    pub slow_start: Option<SlowStart>,
    /// Whether and how instances are ejected for what becomes of their requests; by default only [those that cannot be
    /// reached](Outliers::unreachable).
    pub outliers: Option<Outliers>,
    /// Below which percentage of healthy instances all get requests, 50 by default; see [`with_panic_threshold`](Self::with_panic_threshold).
    pub panic_threshold: u8,
}

impl Default for BalancerOptions {
    fn default() -> Self {
        Self {
            stale: StalePolicy::default(),
            clock: Clock::default(),
            filters: Vec::new(),
            zone: None,
            priorities: None,
            slow_start: None,
            outliers: Some(Outliers::unreachable()),
            panic_threshold: PANIC_THRESHOLD,
        }
    }
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

    /// Adds a condition that an instance has to meet.
    #[must_use]
    pub fn with_filter(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    /// Sets the caller's zone, whose instances come first.
    #[must_use]
    pub fn with_zone(mut self, zone: impl Into<Option<Zone>>) -> Self {
        self.zone = zone.into();
        self
    }

    /// Sets which instances come first.
    #[must_use]
    pub fn with_priorities(mut self, priorities: impl Into<Option<Priorities>>) -> Self {
        self.priorities = priorities.into();
        self
    }

    /// Sets whether and how newcomers get their share gradually.
    #[must_use]
    pub fn with_slow_start(mut self, slow_start: impl Into<Option<SlowStart>>) -> Self {
        self.slow_start = slow_start.into();
        self
    }

    /// Sets whether and how instances are ejected. [`Outliers::default`] has Envoy's rules; `None` ejects nobody.
    #[must_use]
    pub fn with_outliers(mut self, outliers: impl Into<Option<Outliers>>) -> Self {
        self.outliers = outliers.into();
        self
    }

    /// Sets below which percentage of healthy instances all get requests that can be reached, so that the last healthy ones are not
    /// overrun (P4). With several priorities it counts only where they cannot carry everything together. 0 waits until nobody is left.
    #[must_use]
    pub fn with_panic_threshold(mut self, percent: u8) -> Self {
        self.panic_threshold = percent.min(100);
        self
    }
}
