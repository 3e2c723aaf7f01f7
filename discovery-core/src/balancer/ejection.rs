//! Ejections: how many there may be, how long each lasts, and why it was.
//!
//! Source of the rules: Envoy's "Outlier detection" (docs, upstream). An ejection lasts `base_ejection_time` times how often the instance
//! was ejected, at most `max_ejection_time`; with every interval that it is not ejected, that number falls by one.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::outlier::Outliers;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Why an instance was ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EjectionCause {
    /// A request got no connection.
    Unreachable = 0,
    /// Too many requests in a row failed.
    InARow = 1,
    /// Fewer of its requests succeeded than those of others.
    SuccessRate = 2,
    /// Too many of its requests failed.
    FailurePercentage = 3,
}

impl EjectionCause {
    pub(super) fn from_u8(number: u8) -> Self {
        match number {
            1 => Self::InARow,
            2 => Self::SuccessRate,
            3 => Self::FailurePercentage,
            _ => Self::Unreachable,
        }
    }
}

impl fmt::Display for EjectionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "a request got no connection",
            Self::InARow => "too many requests in a row failed",
            Self::SuccessRate => "fewer of its requests succeeded than those of others",
            Self::FailurePercentage => "too many of its requests failed",
        })
    }
}

/// How many instances of one balancer are ejected, and how many may be. Relaxed: only the numbers matter.
#[derive(Debug)]
pub(super) struct Quota {
    taken: AtomicU32,
    limit: AtomicU32,
    /// Failures in a row that are too many, if any are.
    in_a_row: Option<u32>,
}

impl Quota {
    /// A quota of nothing, until it is [set](Self::limit_to).
    pub(super) fn new(in_a_row: Option<u32>) -> Self {
        Self { taken: AtomicU32::new(0), limit: AtomicU32::new(0), in_a_row }
    }

    pub(super) fn limit_to(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(super) fn is_too_many(&self, failures: u32) -> bool {
        self.in_a_row.is_some_and(|limit| failures >= limit)
    }

    /// Takes one, if there is any left.
    pub(super) fn take(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |taken: u32| (taken < limit).then(|| taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// How often one instance was ejected, and until when. Written by the balancer's task alone.
#[derive(Debug, Default)]
pub(super) struct Sentence {
    /// How many times the base the next ejection lasts, less one.
    times: u32,
    /// The end of the ejection that is under way.
    until: Option<Instant>,
    /// The end of the last one.
    readmitted: Option<Instant>,
}

impl Sentence {
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// When the ejection ends; the first call decides on that.
    pub(super) fn serve(&mut self, rules: &Outliers, now: Instant) -> Instant {
        if let Some(until) = self.until {
            return until;
        }
        if let Some(readmitted) = self.readmitted {
            let intervals = now.saturating_duration_since(readmitted).as_nanos() / rules.interval.as_nanos().max(1);
            self.times = self.times.saturating_sub(u32::try_from(intervals).unwrap_or(u32::MAX));
        }
        let longest = rules.max_ejection_time.max(rules.base_ejection_time);
        let lasts = rules.base_ejection_time.saturating_mul(self.times.saturating_add(1)).min(longest);
        // Beyond the longest nothing would grow but the time that it takes to be forgotten.
        if lasts < longest {
            self.times = self.times.saturating_add(1);
        }
        let jitter = rules.jitter.mul_f64(if rules.jitter.is_zero() { 0.0 } else { fastrand::f64() });
        // Who can never come back is as good as one that comes back tomorrow.
        let until = now.checked_add(lasts.saturating_add(jitter)).unwrap_or(now + Duration::from_secs(86_400));
        *self.until.insert(until)
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.until = None;
        self.readmitted = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p04_each_ejection_is_longer_up_to_the_longest_and_time_heals() {
        let rules = Outliers::default();
        let (mut sentence, mut now) = (Sentence::default(), Instant::now());
        let mut ejected = |after: u64| {
            now += Duration::from_secs(after);
            let until = sentence.serve(&rules, now);
            assert_eq!(sentence.serve(&rules, now + Duration::from_secs(1)), until, "decided once");
            let lasts = until - now;
            now = until;
            sentence.end(now);
            lasts.as_secs()
        };
        assert_eq!([0, 0, 0].map(&mut ejected), [30, 60, 90]);
        // Two whole intervals without one: from three times to one.
        assert_eq!([25, 0].map(&mut ejected), [60, 90]);
        assert_eq!([0; 10].map(&mut ejected), [120, 150, 180, 210, 240, 270, 300, 300, 300, 300]);
        // Four intervals: from ten times to six.
        assert_eq!([40, 10_000].map(&mut ejected), [180, 30]);
    }

    #[test]
    fn p04_jitter_comes_on_top_and_nothing_overflows() {
        let now = Instant::now();
        let rules = Outliers::default().with_jitter(Duration::from_secs(5));
        let lasts = Sentence::default().serve(&rules, now) - now;
        assert!((Duration::from_secs(30)..Duration::from_secs(35)).contains(&lasts), "{lasts:?}");
        let rules = Outliers::default().with_ejection_time(Duration::MAX, Duration::ZERO).with_interval(Duration::ZERO);
        let mut sentence = Sentence::default();
        assert!(sentence.serve(&rules, now) > now);
        sentence.end(now);
        assert!(sentence.serve(&rules, now) > now);
    }

    #[test]
    fn p04_a_quota_is_never_exceeded() {
        let quota = Quota::new(None);
        assert!(!quota.take() && !quota.is_too_many(u32::MAX));
        quota.limit_to(2);
        let taken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..100).filter(|_| quota.take()).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(taken, 2);
        quota.give_back();
        assert!(quota.take() && !quota.take());
    }
}
