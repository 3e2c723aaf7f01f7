//! What became of a minute's requests.

use super::simulation::{SECONDS, SERVERS};

const TOO_LONG_MILLIS: f64 = 1_000.0;

/// What became of the requests.
#[derive(Debug)]
pub(super) struct Report {
    /// What each took in milliseconds, sorted.
    pub(super) latencies: Vec<f64>,
    /// How many each server got in each second.
    pub(super) served: Vec<[u32; SERVERS]>,
}

impl Default for Report {
    fn default() -> Self {
        Self { latencies: Vec::new(), served: vec![[0; SERVERS]; SECONDS] }
    }
}

impl Report {
    /// Of requests that took so many milliseconds.
    pub(super) fn of(mut latencies: Vec<f64>) -> Self {
        latencies.sort_by(f64::total_cmp);
        Self { latencies, ..Self::default() }
    }

    pub(super) fn requests(&self) -> usize {
        self.latencies.len()
    }

    pub(super) fn percent_over_a_second(&self) -> f64 {
        100.0 * self.share_over(TOO_LONG_MILLIS)
    }

    /// The share that took longer.
    pub(super) fn share_over(&self, millis: f64) -> f64 {
        let within = self.latencies.partition_point(|latency| *latency <= millis);
        (self.latencies.len() - within) as f64 / self.latencies.len() as f64
    }

    /// What that share took at most.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a list")]
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let place = (self.latencies.len() as f64 * share) as usize;
        self.latencies.get(place).copied().unwrap_or(f64::NAN)
    }
}
