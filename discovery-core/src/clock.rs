//! The time that picking goes by: a read of it must not cost more than the pick.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A moment of a [`Clock`], in nanoseconds since some fixed point of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

impl Moment {
    /// The time from `earlier` to this moment; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds from `earlier` to this moment; zero if that is later.
    #[inline]
    pub fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Nanoseconds since the clock's fixed point.
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// The moment this many nanoseconds after the clock's fixed point.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
}

/// Where the time comes from.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    /// The processor's counter where it can be trusted, else the system's monotonic clock. The crate `quanta` decides and calibrates.
    Fast(quanta::Clock),
    Manual(Arc<AtomicU64>),
}

impl Default for Clock {
    fn default() -> Self {
        Self(Source::Fast(quanta::Clock::new()))
    }
}

impl Clock {
    /// A clock that stands still until it is [moved](ManualClock::advance), for tests and simulations.
    pub fn manual() -> (Self, ManualClock) {
        let nanos = Arc::new(AtomicU64::new(0));
        (Self(Source::Manual(nanos.clone())), ManualClock(nanos))
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Moment {
        Moment(match &self.0 {
            Source::Fast(clock) => clock.delta_as_nanos(0, clock.raw()),
            Source::Manual(nanos) => nanos.load(Ordering::Relaxed),
        })
    }
}

/// Moves a clock that stands still.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_is_measured_in_nanoseconds() {
        let (clock, system) = (Clock::default(), std::time::Instant::now());
        let begun = clock.now();
        while system.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let (ours, theirs) = (clock.now().since(begun), system.elapsed());
        assert!(ours >= Duration::from_millis(19) && ours <= theirs + Duration::from_millis(1), "{ours:?} {theirs:?}");
    }

    #[test]
    fn a_manual_clock_moves_by_hand_alone() {
        let (clock, hand) = Clock::manual();
        let begun = clock.now();
        assert_eq!(clock.now().since(begun), Duration::ZERO);
        hand.advance(Duration::from_secs(2));
        assert_eq!(clock.now().since(begun), Duration::from_secs(2));
        assert_eq!(begun.since(clock.now()), Duration::ZERO);
    }
}
