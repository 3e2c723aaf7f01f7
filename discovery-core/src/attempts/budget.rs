//! How many retries a client may add to the load of servers that fail.
//!
//! Source: gRPC proposal A6 ("gRPC Retry Design", section "Throttling Retry Attempts and Hedged RPCs"): a count of tokens begins full; each
//! failure takes one, each success gives a fraction of one; nothing is retried while half of them or more are gone.

use std::sync::atomic::{AtomicU32, Ordering};

/// Thousandths of a token, as A6 allows three digits of a ratio.
const TOKEN: u32 = 1_000;

/// Tokens of one client and service. Share it by reference among all calls.
///
/// While all goes well a report is one read; nothing is published with the count, so relaxed ordering suffices.
#[derive(Debug)]
pub struct RetryBudget {
    tokens: AtomicU32,
    max: u32,
    ratio: u32,
}

impl Default for RetryBudget {
    /// Ten tokens and a tenth of one for each success: A6's own example. So at most one retry for ten successes in the long run.
    fn default() -> Self {
        Self::new(10, 0.1)
    }
}

impl RetryBudget {
    /// Makes a budget of so many tokens, from 1 to 1,000, which each success refills by `ratio` of one. Values out of bounds are brought
    /// into them; a ratio is rounded to thousandths.
    pub fn new(max_tokens: u32, ratio: f32) -> Self {
        let max = max_tokens.clamp(1, 1_000) * TOKEN;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a thousand")]
        let ratio = (ratio.clamp(0.0, 1.0) * TOKEN as f32).round() as u32;
        Self { tokens: AtomicU32::new(max), max, ratio }
    }

    /// Hears of a success.
    pub fn succeeded(&self) {
        if self.tokens.load(Ordering::Relaxed) < self.max {
            self.change(|tokens| tokens.saturating_add(self.ratio).min(self.max));
        }
    }

    /// Hears of a failure that would be retried, whether or not it is.
    pub fn failed(&self) {
        self.change(|tokens| tokens.saturating_sub(TOKEN));
    }

    /// Whether a retry may be made now: more than half of the tokens are there.
    pub fn permits(&self) -> bool {
        self.tokens.load(Ordering::Relaxed) > self.max / 2
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| Some(change(tokens)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_outage_is_retried_a_few_times_and_then_not() {
        let budget = RetryBudget::default();
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.failed();
            retries += u32::from(budget.permits());
        }
        assert_eq!(retries, 4);
        // Empty is empty: 51 successes bring back the half and a bit.
        for successes in 1.. {
            budget.succeeded();
            if budget.permits() {
                assert_eq!(successes, 51);
                break;
            }
        }
    }

    #[test]
    fn values_out_of_bounds_are_brought_into_them() {
        for (budget, max, ratio) in [
            (RetryBudget::new(0, 5.0), 1_000, 1_000),
            (RetryBudget::new(u32::MAX, -1.0), 1_000_000, 0),
            (RetryBudget::new(3, f32::NAN), 3_000, 0),
        ] {
            assert_eq!((budget.max, budget.ratio), (max, ratio));
        }
    }

    proptest! {
        #[test]
        fn retries_are_bounded_by_successes(outcomes in proptest::collection::vec(any::<bool>(), 0..2_000)) {
            let budget = RetryBudget::default();
            let (mut successes, mut retries) = (0, 0);
            for success in outcomes {
                if success {
                    budget.succeeded();
                    successes += 1;
                } else {
                    budget.failed();
                    retries += u32::from(budget.permits());
                }
                prop_assert!(retries <= 4 + successes / 10 + 1, "{} retries after {} successes", retries, successes);
            }
        }
    }
}
