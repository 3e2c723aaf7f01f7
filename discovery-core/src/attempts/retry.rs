//! How often and how soon a failed request is sent again.

use std::time::Duration;

/// How often and how soon a failed request is sent again. What is worth it is decided by whoever knows the protocol, and whether at the
/// moment, by the [budget](super::RetryBudget).
///
/// Source of the bounds and of the formula: gRPC proposal A6 ("gRPC Retry Design"): at most five attempts; before the n-th retry a random
/// time up to `min(initial * multiplier^(n-1), max)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    attempts: u32,
    initial: Duration,
    max: Duration,
    multiplier: f64,
}

/// A6's cap of `maxAttempts`.
const MOST_ATTEMPTS: u32 = 5;

impl Default for RetryPolicy {
    /// Two attempts in all, the second after up to 25 ms.
    fn default() -> Self {
        Self { attempts: 2, initial: Duration::from_millis(25), max: Duration::from_secs(1), multiplier: 2.0 }
    }
}

impl RetryPolicy {
    /// Sets how many attempts there are in all, the first included: from 1 to 5, more count as 5.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.clamp(1, MOST_ATTEMPTS);
        self
    }

    /// Sets how long the first retry may wait, how long any, and by what the wait grows from one to the next, at least 1.
    #[must_use]
    pub fn with_backoff(mut self, initial: Duration, max: Duration, multiplier: f64) -> Self {
        (self.initial, self.max) = (initial, max);
        self.multiplier = if multiplier.is_finite() { multiplier.max(1.0) } else { 1.0 };
        self
    }

    /// How many attempts there are in all.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How long to wait after so many attempts have failed, by full jitter; `None` if that was the last one.
    pub fn wait_after(&self, failed: u32) -> Option<Duration> {
        if failed == 0 || failed >= self.attempts {
            return None;
        }
        let growth = self.multiplier.powi(i32::try_from(failed - 1).unwrap_or(i32::MAX));
        let longest =
            Duration::try_from_secs_f64(self.initial.as_secs_f64() * growth).unwrap_or(self.max).min(self.max);
        Some(longest.mul_f64(fastrand::f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_end_and_waits_grow_up_to_a_cap() {
        let policy = RetryPolicy::default().with_attempts(99);
        assert_eq!(policy.attempts(), 5);
        let policy = policy.with_backoff(Duration::from_millis(100), Duration::from_millis(250), 2.0);
        let longest = |failed| (0..2_000).filter_map(|_| policy.wait_after(failed)).max();
        for (failed, cap) in [(1, 100), (2, 200), (3, 250), (4, 250)] {
            let longest = longest(failed).unwrap();
            let cap = Duration::from_millis(cap);
            assert!(longest <= cap && longest > cap.mul_f64(0.9), "{failed}: {longest:?}");
        }
        assert_eq!((longest(0), longest(5), longest(u32::MAX)), (None, None, None));
        assert_eq!(RetryPolicy::default().with_attempts(0).wait_after(1), None);
    }

    #[test]
    fn no_number_hurts() {
        for multiplier in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX] {
            let policy = RetryPolicy::default().with_attempts(5).with_backoff(Duration::MAX, Duration::MAX, multiplier);
            assert!((1..5).all(|failed| policy.wait_after(failed).is_some()));
        }
    }
}
