//! Outliers: whose requests go wrong more often than those of others is not asked for a while.
//!
//! Source of the rules and of all defaults: Envoy's "Outlier detection" (docs, upstream, and `outlier_detection.proto`). What Envoy calls a
//! local origin failure is [`Outcome::Unreachable`] here and ejects at the first one, since no connection was made; and an ejection ends
//! when its time is over instead of at the next interval. Envoy enforces `failure_percentage` only if told to; here it is on with the rest.

use std::num::NonZeroU32;
use std::time::Duration;

use super::ejection::EjectionCause;
use super::health::Objection;
use super::{Member, Outcome};

/// Whose success rate is too far below that of others: `mean - stdev * factor` of those with enough requests in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuccessRate {
    /// With fewer instances that have enough requests nobody is judged. Default 5.
    pub minimum_hosts: u32,
    /// How many requests in an interval are enough. Default 100.
    pub request_volume: u64,
    /// The factor in thousandths. Default 1900.
    pub stdev_factor: u32,
}

impl Default for SuccessRate {
    fn default() -> Self {
        Self { minimum_hosts: 5, request_volume: 100, stdev_factor: 1_900 }
    }
}

/// Whose failures are too many, whatever those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailurePercentage {
    /// The percentage of failures that is too much. Default 85.
    pub threshold: u8,
    /// With fewer instances that have enough requests nobody is judged. Default 5.
    pub minimum_hosts: u32,
    /// How many requests in an interval are enough. Default 50.
    pub request_volume: u64,
}

impl Default for FailurePercentage {
    fn default() -> Self {
        Self { threshold: 85, minimum_hosts: 5, request_volume: 50 }
    }
}

/// When an instance is ejected, and for how long. The default has Envoy's constants.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outliers {
    /// How many failures in a row eject, with or without a connection; `None` for never. Default 5.
    pub consecutive_failures: Option<NonZeroU32>,
    /// Whether and how success rates are compared, once an interval.
    pub success_rate: Option<SuccessRate>,
    /// Whether and how failures are counted, once an interval.
    pub failure_percentage: Option<FailurePercentage>,
    /// How often rates are judged, and how fast former ejections are forgotten. Default 10 s.
    pub interval: Duration,
    /// How long the first ejection lasts; the n-th in a row lasts n times that. Default 30 s.
    pub base_ejection_time: Duration,
    /// How long any ejection lasts at most, unless the base is longer. Default 300 s.
    pub max_ejection_time: Duration,
    /// The percentage of the instances that may be ejected at the same time, but always at least one. Default 10, and 50 for
    /// [`Outliers::unreachable`]. Whoever fails beyond that is not ejected.
    pub max_ejection_percent: u8,
    /// Up to this is added at random to each ejection, so that not all clients come back at once. Default 0.
    pub jitter: Duration,
}

impl Default for Outliers {
    fn default() -> Self {
        Self {
            success_rate: Some(SuccessRate::default()),
            failure_percentage: Some(FailurePercentage::default()),
            consecutive_failures: NonZeroU32::new(5),
            max_ejection_percent: 10,
            ..Self::unreachable()
        }
    }
}

impl Outliers {
    /// Ejects only instances to which no connection could be made. What a failure means differs between services; this does not, so up to
    /// half may be ejected; with more [panic mode](crate::BalancerOptions::with_panic_threshold) would ignore it anyway.
    pub fn unreachable() -> Self {
        Self {
            consecutive_failures: None,
            success_rate: None,
            failure_percentage: None,
            interval: Duration::from_secs(10),
            base_ejection_time: Duration::from_secs(30),
            max_ejection_time: Duration::from_secs(300),
            max_ejection_percent: 50,
            jitter: Duration::ZERO,
        }
    }

    /// Sets how many failures in a row eject; 0 for never.
    #[must_use]
    pub fn with_consecutive_failures(mut self, failures: u32) -> Self {
        self.consecutive_failures = NonZeroU32::new(failures);
        self
    }

    /// Sets whether and how success rates are compared.
    #[must_use]
    pub fn with_success_rate(mut self, rule: impl Into<Option<SuccessRate>>) -> Self {
        self.success_rate = rule.into();
        self
    }

    /// Sets whether and how failures are counted.
    #[must_use]
    pub fn with_failure_percentage(mut self, rule: impl Into<Option<FailurePercentage>>) -> Self {
        self.failure_percentage = rule.into();
        self
    }

    /// Sets how often rates are judged.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets how long the first ejection and the longest one last.
    #[must_use]
    pub fn with_ejection_time(mut self, base: Duration, max: Duration) -> Self {
        (self.base_ejection_time, self.max_ejection_time) = (base, max);
        self
    }

    /// Sets how many percent may be ejected at the same time.
    #[must_use]
    pub fn with_max_ejection_percent(mut self, percent: u8) -> Self {
        self.max_ejection_percent = percent.min(100);
        self
    }

    /// Sets what is added at random to each ejection at most.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// How many of so many instances may be ejected.
    pub(super) fn limit(&self, instances: usize) -> u32 {
        let share = instances.saturating_mul(usize::from(self.max_ejection_percent)) / 100;
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    }

    /// Whether rates have to be judged at all.
    pub(super) fn judges_rates(&self) -> bool {
        self.success_rate.is_some() || self.failure_percentage.is_some()
    }

    /// Judges what everybody did since the last time, and ejects as far as the quota allows.
    pub(super) fn judge(&self, known: &[Member]) {
        let tallies = known.iter().map(|member| (member, member.cell().tally(counts(member))));
        // Whoever is ejected already is not compared with: its failures would hide those of the next.
        let is_judged = |member: &Member| !member.cell().flights().health.has(Objection::Ejected);
        let tallies: Vec<_> = tallies.filter(|(member, tally)| tally.total() > 0 && is_judged(member)).collect();
        let judged = |volume: u64, hosts: u32| {
            let enough: Vec<_> = tallies.iter().filter(|(_, tally)| tally.total() >= volume).collect();
            if enough.len() >= hosts as usize { enough } else { Vec::new() }
        };
        if let Some(rule) = &self.success_rate {
            let enough = judged(rule.request_volume, rule.minimum_hosts);
            let least = least(enough.iter().map(|(_, tally)| tally.rate()), f64::from(rule.stdev_factor) / 1_000.0);
            for (member, _) in enough.iter().filter(|(_, tally)| tally.rate() < least) {
                eject(member, EjectionCause::SuccessRate);
            }
        }
        if let Some(rule) = &self.failure_percentage {
            let most = 1.0 - f64::from(rule.threshold) / 100.0;
            let enough = judged(rule.request_volume, rule.minimum_hosts);
            for (member, _) in enough.iter().filter(|(_, tally)| tally.rate() <= most + f64::EPSILON) {
                eject(member, EjectionCause::FailurePercentage);
            }
        }
    }
}

fn eject(member: &Member, cause: EjectionCause) {
    let health = &member.cell().flights().health;
    if !health.has(Objection::Ejected) {
        health.eject(cause);
    }
}

/// How many requests ended well, and how many did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) good: u64,
    pub(super) bad: u64,
}

impl Tally {
    fn total(self) -> u64 {
        self.good.saturating_add(self.bad)
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate needs no more than 15 digits")]
    fn rate(self) -> f64 {
        self.good as f64 / self.total().max(1) as f64
    }

    pub(super) fn since(self, earlier: Self) -> Self {
        Self { good: self.good.saturating_sub(earlier.good), bad: self.bad.saturating_sub(earlier.bad) }
    }
}

/// What was ever counted.
pub(super) fn counts(member: &Member) -> Tally {
    let bad = member.count(Outcome::Failure).saturating_add(member.count(Outcome::Unreachable));
    Tally { good: member.count(Outcome::Success), bad }
}

/// The rate below which one is an outlier: the mean less so many standard deviations (of the whole population).
#[allow(clippy::cast_precision_loss, reason = "there are fewer than 2^52 instances")]
fn least(rates: impl Iterator<Item = f64> + Clone, factor: f64) -> f64 {
    let count = rates.clone().count().max(1) as f64;
    let mean = rates.clone().sum::<f64>() / count;
    let variance = rates.map(|rate| (rate - mean).powi(2)).sum::<f64>() / count;
    // Equal rates may differ in the last digit of their mean.
    mean - factor * variance.sqrt() - 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p04_the_least_rate_is_the_mean_less_the_deviations() {
        let rates = [1.0, 1.0, 1.0, 1.0, 0.5];
        // Mean 0.9, deviation 0.2.
        assert!((least(rates.into_iter(), 1.9) - 0.52).abs() < 1e-9);
        // Equal rates have no outlier, whatever they are.
        assert!(least([0.3; 7].into_iter(), 1.9) <= 0.3 + 1e-9);
        assert!(least(std::iter::empty(), 1.9) <= 0.0);
    }

    #[test]
    fn p04_a_tenth_may_be_ejected_but_always_one() {
        let rules = Outliers::default();
        assert_eq!([0, 1, 9, 10, 19, 20, 1_000].map(|n| rules.limit(n)), [1, 1, 1, 1, 1, 2, 100]);
        assert_eq!(Outliers::default().with_max_ejection_percent(0).limit(50), 1);
        assert_eq!(Outliers::default().with_max_ejection_percent(200).limit(50), 50);
    }
}
