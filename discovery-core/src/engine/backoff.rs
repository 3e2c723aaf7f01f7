//! Waits between tries: exponential, with jitter, up to a cap.
//!
//! The formula is "full jitter" of the AWS Architecture Blog ("Exponential Backoff And Jitter", 2015), a uniform draw up to the doubling
//! bound, which spreads the clients of a store that comes back (L2). The draw begins at a quarter of the bound instead of zero: from
//! zero, one minute in some thousands sees more than 30 tries (L1), and with the default cap a quarter is the least that rules that out.

use std::time::Duration;

/// The bound of the first wait. Shorter would find most servers still restarting.
const BASE: Duration = Duration::from_millis(100);

/// The least wait, as a share of its bound.
const LEAST: f64 = 0.25;

/// Counts tries and draws waits.
#[derive(Debug)]
pub struct Backoff {
    cap: Duration,
    tries: u32,
    rng: fastrand::Rng,
}

impl Backoff {
    /// Begins with waits of at most 100 ms, whose bound doubles up to `cap`.
    pub fn new(cap: Duration) -> Self {
        Self { cap, tries: 0, rng: fastrand::Rng::new() }
    }

    /// Begins anew after a success.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// The wait before the next try.
    ///
    /// What nobody but a person can mend (a wrong password, a missing right) waits between half the cap and the cap from the start:
    /// quick tries would only fill the store's log and lock the account.
    pub fn next(&mut self, retryable: bool) -> Duration {
        if !retryable {
            return self.cap.mul_f64(0.5 + self.rng.f64() / 2.0);
        }
        let bound = BASE.saturating_mul(1u32 << self.tries.min(20)).min(self.cap);
        self.tries = self.tries.saturating_add(1);
        bound.mul_f64(LEAST + (1.0 - LEAST) * self.rng.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_never_overflow() {
        let cap = Duration::from_secs(10);
        let mut backoff = Backoff::new(cap);
        for _ in 0..1_000 {
            assert!(backoff.next(true) <= cap);
        }
        backoff.reset();
        assert!(backoff.next(true) <= BASE);
        assert!(backoff.next(false) >= cap / 2);
    }

    #[test]
    fn l01_a_minute_without_the_store_sees_at_most_thirty_tries() {
        let cap = Duration::from_secs(10);
        for _ in 0..10_000 {
            let mut backoff = Backoff::new(cap);
            let (mut at, mut tries) = (Duration::ZERO, 1);
            loop {
                at += backoff.next(true);
                if at > Duration::from_secs(60) {
                    break;
                }
                tries += 1;
            }
            assert!(tries <= 30, "{tries} tries");
        }
        // Nor with the shortest of all draws.
        let bounds = (0..).map(|tries| BASE.saturating_mul(1 << tries.min(20)).min(cap));
        let times = bounds.scan(Duration::ZERO, |at, bound| {
            *at += bound.mul_f64(LEAST);
            Some(*at)
        });
        assert_eq!(1 + times.take_while(|at| *at <= Duration::from_secs(60)).count(), 30);
    }
}
