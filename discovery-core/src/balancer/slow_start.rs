//! Slow start: who joins takes its share gradually (P7).
//!
//! Source of the formula and of both defaults: Envoy's "Slow start mode" (docs, upstream load balancing):
//! `weight * max(min_weight_percent, (time since start / window)^(1 / aggression))`, with an aggression of 1 and at least 10 %.

use std::time::Duration;

use tokio::time::Instant;

/// In how many steps a window is taken. Each is a new selection, so more would cost, and fewer would be felt.
const STEPS: u32 = 20;
/// The shortest step; a timer is no finer.
const SHORTEST: Duration = Duration::from_millis(1);
/// Weights below this are too coarse for a share, so all are multiplied by [`FINER`] while somebody starts slowly.
const COARSE: u32 = 20;
const FINER: u32 = 100;

/// Whoever joins takes its share gradually.
///
/// Time counts from when this process saw the instance first, by its own clock; those of the first set are there already. It passes in
/// twenty steps a window. Pickers that [start by weight](crate::Picker::starts_by_weight) see a smaller
/// [`Member::weight`](crate::Member::weight). Around the others, such as round robin and the rings of peers, the balancer passes the newcomer
/// over so often that it has about the same share. Of requests with a key it is always the same keys that it is passed over for, and they become
/// fewer, so each key moves to it once.
#[derive(Debug, Clone)]
pub struct SlowStart {
    window: Duration,
    aggression: f64,
    min_weight_percent: u8,
}

impl SlowStart {
    /// Reaches the full share after this time. Zero switches it off.
    pub fn new(window: Duration) -> Self {
        Self { window, aggression: 1.0, min_weight_percent: 10 }
    }

    /// Sets how the share grows: 1, the default, in proportion to time; more grows faster at first, less grows faster later. What is not
    /// above 0 counts as 1.
    #[must_use]
    pub fn with_aggression(mut self, aggression: f64) -> Self {
        self.aggression = if aggression > 0.0 { aggression } else { 1.0 };
        self
    }

    /// Sets the percentage of its share that an instance has at once, 10 by default and at most 100.
    #[must_use]
    pub fn with_min_weight_percent(mut self, percent: u8) -> Self {
        self.min_weight_percent = percent.min(100);
        self
    }

    /// The part of its weight that an instance has at this age.
    fn share(&self, age: Duration) -> f64 {
        if age >= self.window {
            return 1.0;
        }
        let grown = (age.as_secs_f64() / self.window.as_secs_f64()).powf(self.aggression.recip());
        grown.max(f64::from(self.min_weight_percent) / 100.0)
    }
}

/// The steps of all who start slowly, at the same moments, so that many newcomers cost no more selections than one.
#[derive(Debug)]
pub(super) struct Steps {
    rule: SlowStart,
    begun: Instant,
    step: Duration,
}

impl Steps {
    pub(super) fn new(rule: &SlowStart, now: Instant) -> Option<Self> {
        let step = (rule.window / STEPS).max(SHORTEST);
        (!rule.window.is_zero()).then(|| Self { rule: rule.clone(), begun: now, step })
    }

    /// Which part of its weight an instance has that joined then. The same between two steps.
    pub(super) fn share(&self, joined: Instant, now: Instant) -> f64 {
        // It joined with the step that comes, so that no share is reached too early.
        let age = self.step.saturating_mul(self.number(now).saturating_sub(self.number(joined).saturating_add(1)));
        self.rule.share(age)
    }

    /// When the next step comes.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.begun.checked_add(self.step.checked_mul(self.number(now).saturating_add(1))?)
    }

    fn number(&self, at: Instant) -> u32 {
        let steps = at.saturating_duration_since(self.begun).as_nanos() / self.step.as_nanos();
        u32::try_from(steps).unwrap_or(u32::MAX)
    }
}

/// By what all weights are multiplied, given the largest weight and the smallest of somebody who starts slowly.
pub(super) fn scale(largest: u32, smallest_starting: u32) -> u32 {
    // Where that does not fit, whoever has so little has no share that anybody could feel.
    if smallest_starting < COARSE && largest <= u32::MAX / FINER { FINER } else { 1 }
}

/// The weight for a share, never 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and the weight")]
pub(super) fn weight(full: u32, share: f64) -> u32 {
    if share >= 1.0 { full } else { ((f64::from(full) * share).round() as u32).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn p07_the_share_is_envoys_formula() {
        let at = |rule: &SlowStart, seconds: [u32; 5]| seconds.map(|s| (rule.share(SECOND * s) * 100.0).round());
        let seconds = [0, 3, 15, 30, 60];
        assert_eq!(at(&SlowStart::new(SECOND * 60), seconds), [10.0, 10.0, 25.0, 50.0, 100.0]);
        assert_eq!(at(&SlowStart::new(SECOND * 60).with_aggression(2.0), seconds), [10.0, 22.0, 50.0, 71.0, 100.0]);
        let rule = SlowStart::new(SECOND * 60).with_aggression(0.5).with_min_weight_percent(2);
        assert_eq!(at(&rule, seconds), [2.0, 2.0, 6.0, 25.0, 100.0]);
        let odd = SlowStart::new(SECOND * 60).with_aggression(f64::NAN).with_min_weight_percent(255);
        assert_eq!(at(&odd, seconds), [100.0; 5]);
        assert!(Steps::new(&SlowStart::new(Duration::ZERO), Instant::now()).is_none());
    }

    #[test]
    fn p07_weights_too_coarse_for_a_share_are_made_finer() {
        assert_eq!([scale(100, 100), scale(100, 1), scale(u32::MAX, 1)], [1, 100, 1]);
        assert_eq!([weight(100, 0.55), weight(1, 0.1), weight(7, 1.0)], [55, 1, 7]);
    }

    proptest! {
        /// Whenever one joins and is looked at, its share is never above the formula's and at most two steps behind.
        #[test]
        fn p07_steps_follow_the_formula(joined in 0u64..300_000, age in 0u64..100_000) {
            let rule = SlowStart::new(SECOND * 60);
            let begun = Instant::now();
            let steps = Steps::new(&rule, begun).unwrap();
            let (joined, age) = (begun + Duration::from_millis(joined), Duration::from_millis(age));
            let share = steps.share(joined, joined + age);
            prop_assert!(share <= rule.share(age));
            prop_assert!(share >= rule.share(age.saturating_sub(SECOND * 6)));
            let next = steps.next(joined).unwrap();
            prop_assert!(next > joined && next <= joined + SECOND * 3);
        }
    }
}
