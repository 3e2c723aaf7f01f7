//! Which time a share of requests stays under: a histogram that forgets.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Parts of each power of two, so that a bucket is at most an eighth wider than its neighbour.
const PARTS: u64 = 8;
const PARTS_BITS: u32 = PARTS.trailing_zeros();
/// Buckets from a microsecond up to 2^36 µs, which is nineteen hours.
const BUCKETS: usize = (36 * PARTS) as usize;
/// After so many requests everything counts half. Enough that a thousandth of them is several.
const MEMORY: u64 = 8_192;

/// Counts requests by how long they took. Recording is two additions; nothing is published with them, so relaxed ordering suffices.
#[derive(Debug)]
pub(super) struct Latencies {
    buckets: Box<[AtomicU32]>,
    recorded: AtomicU64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(), recorded: AtomicU64::new(0) }
    }
}

impl Latencies {
    /// Records a request, and answers how many there were before it.
    pub(super) fn record(&self, took: Duration) -> u64 {
        if let Some(bucket) = self.buckets.get(bucket(took)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let before = self.recorded.fetch_add(1, Ordering::Relaxed);
        if before % MEMORY == MEMORY - 1 {
            for bucket in &self.buckets {
                let _ = bucket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count / 2));
            }
        }
        before
    }

    /// The time under which that share of the requests stayed, rounded up to the end of its bucket; `None` if there was none.
    pub(super) fn quantile(&self, share: f64) -> Option<Duration> {
        let counts: Vec<_> = self.buckets.iter().map(|bucket| u64::from(bucket.load(Ordering::Relaxed))).collect();
        let all: u64 = counts.iter().sum();
        let mut below = 0;
        let at = counts.iter().position(|count| {
            below += count;
            below > 0 && below as f64 >= share * all as f64
        });
        at.map(|at| Duration::from_micros(end(at)))
    }
}

fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if micros < PARTS {
        return usize::try_from(micros).unwrap_or(0);
    }
    let exponent = micros.ilog2();
    let part = (micros >> (exponent - PARTS_BITS)) - PARTS;
    let bucket = u64::from(exponent - PARTS_BITS + 1) * PARTS + part;
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The first microsecond behind a bucket.
fn end(bucket: usize) -> u64 {
    let (power, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    if power == 0 { part + 1 } else { (PARTS + part + 1) << (power - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_right_to_an_eighth() {
        let latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        for millis in 1..=1_000 {
            latencies.record(Duration::from_millis(millis));
        }
        for (share, millis) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found = latencies.quantile(share).unwrap().as_secs_f64() * 1e3;
            assert!(found >= millis && found <= millis * 1.126, "{share}: {found}");
        }
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let latencies = Latencies::default();
        (0..10_000).for_each(|_| _ = latencies.record(Duration::from_secs(1)));
        (0..60_000).for_each(|_| _ = latencies.record(Duration::from_millis(1)));
        assert!(latencies.quantile(0.95).unwrap() < Duration::from_millis(2));
    }

    proptest! {
        #[test]
        fn every_time_lies_before_the_end_of_its_bucket(micros in any::<u64>()) {
            let at = bucket(Duration::from_micros(micros));
            prop_assert!(at < BUCKETS);
            if at < BUCKETS - 1 {
                prop_assert!(micros < end(at) && (at == 0 || micros >= end(at - 1)), "{} in {}", micros, at);
            }
        }
    }
}
