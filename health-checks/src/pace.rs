//! When an instance is checked: at an interval, and never in step with the others.

use std::time::Duration;

/// Draws the waits between the checks of one instance.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    /// From 0 to 1.
    jitter: f64,
    rng: fastrand::Rng,
}

impl Pace {
    pub(crate) fn new(interval: Duration, jitter_percent: u8, rng: fastrand::Rng) -> Self {
        Self { interval, jitter: f64::from(jitter_percent.min(100)) / 100.0, rng }
    }

    /// The wait before the first check: anywhere in an interval.
    ///
    /// So a set that arrives at once is spread over the interval from the start, and an instance that comes and goes is not checked
    /// more often than one that stays.
    pub(crate) fn first(&mut self) -> Duration {
        self.interval.mul_f64(self.rng.f64())
    }

    /// The wait between two checks: the interval on average, whatever the checks found.
    pub(crate) fn next(&mut self) -> Duration {
        self.interval.mul_f64(1.0 + self.jitter * (2.0 * self.rng.f64() - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn pace(jitter: u8, seed: u64) -> Pace {
        Pace::new(INTERVAL, jitter, fastrand::Rng::with_seed(seed))
    }

    #[test]
    fn waits_stay_within_the_jitter_and_reach_to_its_bounds() {
        for (percent, least, most) in [(0, 10.0, 10.0), (10, 9.0, 11.0), (100, 0.0, 20.0), (255, 0.0, 20.0)] {
            let mut pace = pace(percent, 1);
            let waits: Vec<_> = (0..10_000).map(|_| pace.next().as_secs_f64()).collect();
            let (min, max) = waits.iter().fold((f64::MAX, 0f64), |(min, max), wait| (min.min(*wait), max.max(*wait)));
            assert!(min >= least && max <= most, "{percent}: {min} {max}");
            assert!(min - least <= 0.01 && most - max <= 0.01, "{percent}: {min} {max}");
            let mean = waits.iter().sum::<f64>() / waits.len() as f64;
            assert!((mean - 10.0).abs() < 0.2, "{percent}: {mean}");
        }
    }

    #[test]
    fn first_checks_are_spread_over_the_interval() {
        let mut tenths = [0; 10];
        for seed in 0..1_000 {
            let first = pace(10, seed).first();
            assert!(first < INTERVAL);
            tenths[first.as_secs() as usize] += 1;
        }
        // A hundred each, give or take five standard deviations.
        assert!(tenths.iter().all(|count| (53..=147).contains(count)), "{tenths:?}");
    }
}
