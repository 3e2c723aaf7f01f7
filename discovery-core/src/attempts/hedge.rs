//! When a request that takes long is sent a second time.
//!
//! Source of the idea: J. Dean and L. A. Barroso, "The Tail at Scale" (CACM 2013): a second copy after the time that nearly all requests
//! stay under costs next to nothing and cuts the tail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::latencies::Latencies;

/// How often what is known is looked through.
const REFRESH: u64 = 128;
/// Requests before anything is known well enough.
const ENOUGH: u64 = 256;
/// Parts of a hedge, so that a share can be saved for each request.
const WHOLE: u64 = 1_000_000;
/// Hedges that may be saved for a burst. A server of eleven that becomes slow has fifteen of a thousand requests a second before anybody
/// can know (the bench `tail`).
const BURST: u64 = 20;

/// When to hedge, and how often at most.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct HedgeOptions {
    /// The share of requests that are not to be hedged, from 0.5 to 0.9999. By default 0.99.
    pub quantile: f64,
    /// By what the time that this share stays under is multiplied, from 1 to 10. By default 1.5: a hair's breadth above the quantile, one
    /// request in a hundred would be sent twice for nothing.
    pub factor: f64,
    /// The most hedges for each request in the long run, up to 1. By default 0.01.
    pub budget: f64,
    /// The shortest wait. By default 1 ms.
    pub floor: Duration,
}

impl Default for HedgeOptions {
    fn default() -> Self {
        Self { quantile: 0.99, factor: 1.5, budget: 0.01, floor: Duration::from_millis(1) }
    }
}

impl HedgeOptions {
    /// Sets the share of requests that are not to be hedged.
    #[must_use]
    pub fn with_quantile(mut self, quantile: f64) -> Self {
        self.quantile = quantile;
        self
    }

    /// Sets by what the time that this share stays under is multiplied.
    #[must_use]
    pub fn with_factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Sets the most hedges for each request in the long run.
    #[must_use]
    pub fn with_budget(mut self, budget: f64) -> Self {
        self.budget = budget;
        self
    }
}

/// The hedging of requests that are alike, such as those of one method. Hedge only what may be done twice.
///
/// The copy goes to another instance, the first answer counts, and the other copy is given up. If that is the first one, report it as
/// [`Failure`](crate::Outcome::Failure): as merely cancelled it would teach a picker that goes by time no more than how long it was waited
/// for, and the slow instance would be asked again and again. A copy that lost is [`Cancelled`](crate::Outcome::Cancelled).
///
/// It learns by itself: for the first few hundred requests nothing is hedged. All its numbers stand for themselves, so relaxed ordering
/// suffices.
#[derive(Debug)]
pub struct Hedge {
    options: HedgeOptions,
    latencies: Latencies,
    /// Nanoseconds; 0 for not known yet.
    delay: AtomicU64,
    saved: AtomicU64,
}

impl Hedge {
    /// Begins to learn. Options out of bounds are brought into them.
    pub fn new(mut options: HedgeOptions) -> Self {
        let within = |value: f64, low: f64, high: f64| if value.is_nan() { high } else { value.clamp(low, high) };
        options.quantile = within(options.quantile, 0.5, 0.9999);
        options.factor = within(options.factor, 1.0, 10.0);
        options.budget = if options.budget.is_nan() { 0.0 } else { options.budget.clamp(0.0, 1.0) };
        Self { options, latencies: Latencies::default(), delay: AtomicU64::new(0), saved: AtomicU64::new(0) }
    }

    /// Hears how long a request took from its first attempt to its answer, hedged or not. Without those that were hedged it would come to
    /// believe that none is slow.
    pub fn record(&self, took: Duration) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a million")]
        let share = (self.options.budget * WHOLE as f64) as u64;
        self.change_saved(|saved| Some((saved + share).min(BURST * WHOLE)));
        let before = self.latencies.record(took);
        if before >= ENOUGH && before.is_multiple_of(REFRESH) {
            let known = self.latencies.quantile(self.options.quantile);
            let delay =
                known.map_or(Duration::ZERO, |known| known.mul_f64(self.options.factor).max(self.options.floor));
            self.delay.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// How long to wait for an answer before a second copy is [asked for](Self::permits); `None` while too little is known.
    pub fn delay(&self) -> Option<Duration> {
        let nanos = self.delay.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Whether a second copy may be sent now. Each yes is taken from the budget.
    pub fn permits(&self) -> bool {
        self.change_saved(|saved| saved.checked_sub(WHOLE))
    }

    fn change_saved(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_what_is_slow_and_keeps_its_budget() {
        let hedge = Hedge::new(HedgeOptions::default());
        assert!(hedge.delay().is_none() && !hedge.permits());
        for n in 0..10_000u64 {
            hedge.record(Duration::from_millis(100 + n % 10));
        }
        let delay = hedge.delay().unwrap().as_millis();
        assert!((150..=190).contains(&delay), "{delay} ms");
        // However slow everything is, not more than a burst and a hundredth of the requests.
        let mut hedged = 0;
        for _ in 0..10_000 {
            hedged += u32::from(hedge.permits());
            hedge.record(Duration::from_secs(5));
        }
        assert!((100..=121).contains(&hedged), "{hedged}");
    }

    #[test]
    fn options_out_of_bounds_are_brought_into_them() {
        let wild = HedgeOptions::default().with_quantile(7.0).with_factor(f64::NAN).with_budget(-1.0);
        let hedge = Hedge::new(wild);
        assert_eq!((hedge.options.quantile, hedge.options.factor, hedge.options.budget), (0.9999, 10.0, 0.0));
        for _ in 0..1_000 {
            hedge.record(Duration::MAX);
        }
        assert!(hedge.delay().is_some() && !hedge.permits());
    }
}
