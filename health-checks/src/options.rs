//! How a checker behaves.

use std::sync::Arc;
use std::time::Duration;

use crate::Slots;
use crate::tally::Thresholds;

/// The shortest interval. Anything shorter is load without news.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// The longest, so that no sum of times overflows.
const MAX_INTERVAL: Duration = Duration::from_secs(86_400);

/// How a checker behaves.
///
/// Interval, timeout and thresholds are by default those of Kubernetes' probes
/// (<https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#configure-probes>):
/// 10 s, 1 s, unhealthy after 3 failures, healthy after 1 success. Envoy has the same values to set and demands that they are.
#[derive(Debug, Clone)]
pub struct CheckerOptions {
    pub(crate) interval: Duration,
    pub(crate) jitter_percent: u8,
    pub(crate) timeout: Duration,
    pub(crate) thresholds: Thresholds,
    pub(crate) slots: Slots,
    pub(crate) schemes: Option<Arc<[Box<str>]>>,
}

impl Default for CheckerOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            jitter_percent: 10,
            timeout: Duration::from_secs(1),
            thresholds: Thresholds { unhealthy_after: 3, healthy_after: 1 },
            slots: Slots::default(),
            schemes: None,
        }
    }
}

impl CheckerOptions {
    /// Sets the time between the end of a check and the begin of the next of the same instance, from 10 ms to a day; 10 s by default.
    ///
    /// It is the same whatever the checks find. The first check comes at a random moment of the first interval.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval.clamp(MIN_INTERVAL, MAX_INTERVAL);
        self
    }

    /// Sets how far each wait may differ from the interval, in percent of it, up to 100; 10 by default. The interval stays the average.
    ///
    /// Without any, checks that fell into step, as after a pause of this process, stay in step.
    #[must_use]
    pub fn with_jitter_percent(mut self, percent: u8) -> Self {
        self.jitter_percent = percent.min(100);
        self
    }

    /// Sets after which time without an answer a check has failed, at least 1 ms; 1 s by default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sets how many failures in a row make an instance unhealthy, at least 1; 3 by default.
    #[must_use]
    pub fn with_unhealthy_after(mut self, failures: u32) -> Self {
        self.thresholds.unhealthy_after = failures.max(1);
        self
    }

    /// Sets how many successes in a row make an unhealthy instance healthy again, at least 1; 1 by default.
    #[must_use]
    pub fn with_healthy_after(mut self, successes: u32) -> Self {
        self.thresholds.healthy_after = successes.max(1);
        self
    }

    /// Sets the bound on checks at once; clones of the options share it too.
    #[must_use]
    pub fn with_slots(mut self, slots: Slots) -> Self {
        self.slots = slots;
        self
    }

    /// Sets which endpoint of an instance is checked: the first with one of these schemes, in their order. By default the
    /// [check's](crate::Check::schemes).
    ///
    /// An instance without such an endpoint is not checked and counts as healthy.
    #[must_use]
    pub fn with_schemes(mut self, schemes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.schemes = Some(schemes.into_iter().map(|scheme| scheme.into().to_ascii_lowercase().into()).collect());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_hammer_or_never_succeed_is_bounded() {
        let options = CheckerOptions::default()
            .with_interval(Duration::ZERO)
            .with_timeout(Duration::ZERO)
            .with_jitter_percent(200)
            .with_unhealthy_after(0)
            .with_healthy_after(0);
        assert_eq!((options.interval, options.timeout), (MIN_INTERVAL, Duration::from_millis(1)));
        assert_eq!(options.jitter_percent, 100);
        assert_eq!((options.thresholds.unhealthy_after, options.thresholds.healthy_after), (1, 1));
        assert_eq!(CheckerOptions::default().with_interval(Duration::MAX).interval, MAX_INTERVAL);
    }
}
