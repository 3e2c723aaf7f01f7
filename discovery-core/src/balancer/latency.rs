//! How long an instance takes: a peak-sensitive moving average of what ended, and how long nothing has ended.
//!
//! Source of the average: Finagle's "Peak EWMA" (twitter/finagle, `PeakEwma.scala`): a slower answer counts at once, faster ones are
//! believed gradually. Added to it: the time without an answer, so that an instance that has stopped answering is seen before it
//! answers; and failures and cancellations, which say nothing good however fast they come.

use std::time::Duration;

use super::Outcome;
use crate::clock::{Clock, Moment};
use crate::sync::atomic::{AtomicU64, Ordering};

/// How fast old answers are forgotten: after so long they count 1/e. Finagle's default.
pub(super) const DECAY: Duration = Duration::from_secs(10);
/// A failure counts as twice as slow as what was known, in nanoseconds at least this.
const FAILURE_FLOOR: f32 = 1.0e6;
/// What failures can raise the average to, in nanoseconds.
const FAILURE_CEILING: f32 = 10.0e9;

/// The average's time is kept in units of 2^20 ns (1.05 ms), so that 32 bits last for 52 days.
const STAMP_BITS: u32 = 20;
/// How far ahead of a reader's time an average may have been written, an hour: a `Reader` does not look at the clock for each pick. All else
/// was written in the past, so after up to 52 days without a request an average has faded; were this half of all ticks, as a signed
/// difference has it, it would come back as fresh after 26.
const AHEAD: u32 = ((3_600 * 1_000_000_000u64) >> STAMP_BITS) as u32;

/// Two words, each always read as it was written. They are stored, not added to: of two answers at the same moment one may go unheard,
/// which an average can bear, and an addition would cost as much as the whole pick.
#[derive(Debug, Default)]
pub(super) struct Latency {
    /// The average in nanoseconds as `f32` in the upper half, 0 for nobody knows; in the lower half when it was written.
    average: AtomicU64,
    /// When a request ended last, or when the first began after none was in flight; 0 for nobody knows.
    progress: AtomicU64,
}

/// The last bit of an average that is only known to be too low; a hundred-millionth is none too exact.
const BOUND: u32 = 1;

/// Whether an average comes from an answer or a failure.
#[inline]
fn is_answer(average: f32) -> bool {
    average > 0.0 && average.to_bits() & BOUND == 0
}

/// Whether a request is timed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timing {
    /// The picker does not go by time.
    Off,
    /// Others are timed, but not this one: there are many.
    Skipped,
    /// It began at this moment.
    Since(Moment),
}

impl Latency {
    /// Hears that a request begins while so many others are in flight.
    #[inline]
    pub(super) fn begin(&self, timing: Timing, pending: u32) {
        match timing {
            Timing::Off => {}
            Timing::Skipped if pending == 0 => self.progress.store(0, Ordering::Relaxed),
            Timing::Skipped => {}
            Timing::Since(at) => {
                if pending == 0 || self.progress.load(Ordering::Relaxed) == 0 {
                    self.progress.store(at.nanos(), Ordering::Relaxed);
                }
            }
        }
    }

    /// Hears that a request ended; one without an outcome was never sent.
    #[inline]
    pub(super) fn end(&self, timing: Timing, clock: &Clock, outcome: Option<Outcome>) {
        match timing {
            Timing::Off => {}
            Timing::Since(begun) => self.ended(begun, clock.now(), outcome),
            // A failure is no question of time.
            Timing::Skipped if matches!(outcome, Some(Outcome::Failure | Outcome::Unreachable)) => {
                let now = clock.now();
                self.ended(now, now, outcome);
            }
            Timing::Skipped => self.progress.store(0, Ordering::Relaxed),
        }
    }

    #[inline]
    fn ended(&self, begun: Moment, now: Moment, outcome: Option<Outcome>) {
        let took = float(now.nanos_since(begun));
        let (average, written) = unpack(self.average.load(Ordering::Relaxed));
        let fading = fading(now, written);
        let known = average / fading;
        match outcome {
            // A peak is believed at once.
            Some(Outcome::Success) if took >= known || !is_answer(average) => self.learn(took, now),
            // At the same tick nothing has faded, so a faster answer changes nothing.
            Some(Outcome::Success) if fading > 1.0 => self.learn(took + (average - took) / fading, now),
            Some(Outcome::Success) => {}
            Some(Outcome::Failure | Outcome::Unreachable) => {
                self.learn((2.0 * known.max(took)).clamp(FAILURE_FLOOR, FAILURE_CEILING), now);
            }
            // It would have taken longer still, and it says nothing of the answers of others. Where nothing was known it has been tried now, or
            // whoever hangs would be tried first for ever by callers who give up.
            Some(Outcome::Cancelled) if !is_answer(average) => return self.learn_bound(took.max(known), now),
            Some(Outcome::Cancelled) if took > known => return self.learn(took, now),
            Some(Outcome::Cancelled) | None => return,
        }
        self.progress.store(now.nanos(), Ordering::Relaxed);
    }

    #[inline]
    fn learn(&self, average: f32, now: Moment) {
        // Zero would mean that nothing is known.
        let answer = f32::from_bits(average.max(1.0).to_bits() & !BOUND);
        self.average.store(pack(answer, stamp(now)), Ordering::Relaxed);
    }

    /// Learns that an answer takes longer than this, where none was ever heard.
    #[inline]
    fn learn_bound(&self, average: f32, now: Moment) {
        let bound = f32::from_bits(average.max(1.0).to_bits() | BOUND);
        self.average.store(pack(bound, stamp(now)), Ordering::Relaxed);
    }

    /// Whether any request has told how long it takes.
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        is_answer(unpack(self.average.load(Ordering::Relaxed)).0)
    }

    /// What an answer is expected to take in nanoseconds while so many requests are in flight, as far as anything is known. Reading it
    /// changes nothing.
    ///
    /// The average is faded by the time since it was written, so whoever was slow long ago is tried again. If nothing has ended for longer
    /// than that although requests are in flight, the oldest of them has taken that long already.
    #[inline]
    pub(super) fn expected(&self, now: Moment, pending: u32) -> Option<f32> {
        let (average, written) = unpack(self.average.load(Ordering::Relaxed));
        let known = average / fading(now, written);
        if pending == 0 {
            return (known > 0.0).then_some(known);
        }
        let silent = match self.progress.load(Ordering::Relaxed) {
            0 => 0.0,
            progress => float(now.nanos_since(Moment::from_nanos(progress))),
        };
        // Both are numbers, so comparing them is all that `max` would do.
        let expected = if silent > known { silent } else { known };
        (expected > 0.0).then_some(expected)
    }
}

#[inline]
#[allow(clippy::cast_precision_loss, reason = "an average needs no more than seven digits")]
fn float(nanos: u64) -> f32 {
    // Signed, as processors convert those in one step; 292 years are enough.
    nanos.cast_signed() as f32
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "it wraps")]
fn stamp(now: Moment) -> u32 {
    (now.nanos() >> STAMP_BITS) as u32
}

#[inline]
fn pack(value: f32, written: u32) -> u64 {
    (u64::from(value.to_bits()) << 32) | u64::from(written)
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "two halves")]
fn unpack(bits: u64) -> (f32, u32) {
    (f32::from_bits((bits >> 32) as u32), bits as u32)
}

/// By what the time since `written` divides a weight of 1: `e^x` by the first terms of its series, which is 2.5 instead of 2.7 at 1.
#[inline]
#[allow(clippy::cast_precision_loss, reason = "a weight needs no more than seven digits")]
fn fading(now: Moment, written: u32) -> f32 {
    const PER_TICK: f32 = (1u64 << STAMP_BITS) as f32 / DECAY.as_nanos() as f32;
    let ticks = stamp(now).wrapping_sub(written);
    // At the same tick, or written a moment ago by another thread whose look at the clock is newer.
    if ticks == 0 || ticks > u32::MAX - AHEAD {
        return 1.0;
    }
    let x = ticks as f32 * PER_TICK;
    1.0 + x + x * x / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * MS)
    }

    fn expected(latency: &Latency, millis: u64) -> Option<u64> {
        pending(latency, millis, 0)
    }

    fn pending(latency: &Latency, millis: u64, pending: u32) -> Option<u64> {
        latency.expected(at(millis), pending).map(|nanos| (f64::from(nanos) / 1e6).round() as u64)
    }

    fn took(latency: &Latency, begun: u64, ended: u64, outcome: Outcome) {
        latency.begin(Timing::Since(at(begun)), 0);
        latency.ended(at(begun), at(ended), Some(outcome));
    }

    #[test]
    fn a_peak_counts_at_once_and_fades() {
        let latency = Latency::default();
        assert_eq!(expected(&latency, 0), None);
        took(&latency, 1_000, 1_100, Outcome::Success);
        assert_eq!(expected(&latency, 1_100), Some(100));
        took(&latency, 1_100, 3_100, Outcome::Success);
        assert_eq!(expected(&latency, 3_100), Some(2_000));
        // Reading changes nothing, however often.
        assert_eq!(expected(&latency, 13_100), Some(800));
        assert_eq!(expected(&latency, 13_100), Some(800));
        // A faster one is believed by the time that has passed.
        took(&latency, 13_000, 13_100, Outcome::Success);
        assert_eq!(expected(&latency, 13_100), Some(860));
        assert!(expected(&latency, 100_000).unwrap() < 25);
    }

    #[test]
    fn who_does_not_answer_is_seen_before_the_answer() {
        let latency = Latency::default();
        took(&latency, 0, 100, Outcome::Success);
        (100..200).zip(0..).for_each(|(begun, pending)| latency.begin(Timing::Since(at(begun)), pending));
        // As long as they do not take longer than usual, nothing is said.
        assert_eq!(pending(&latency, 200, 100), Some(100));
        assert_eq!(pending(&latency, 500, 100), Some(400));
        // One answers after all, which is a peak; the time without an answer begins anew.
        latency.ended(at(100), at(500), Some(Outcome::Success));
        assert_eq!(pending(&latency, 600, 99), Some(396));
        // Where nothing is in flight, time alone says nothing.
        assert!(expected(&latency, 5_000).unwrap() < 400);
    }

    #[test]
    fn who_is_not_timed_leaves_no_false_silence() {
        let (clock, latency) = (Clock::manual().0, Latency::default());
        took(&latency, 0, 100, Outcome::Success);
        // The first of them begins at a moment that nobody took.
        latency.begin(Timing::Skipped, 0);
        assert_eq!(pending(&latency, 5_000, 1), expected(&latency, 5_000));
        latency.begin(Timing::Since(at(5_000)), 1);
        assert_eq!(pending(&latency, 6_000, 2), Some(1_000));
        latency.end(Timing::Skipped, &clock, Some(Outcome::Success));
        assert_eq!(pending(&latency, 6_000, 1), expected(&latency, 6_000));
    }

    #[test]
    fn an_average_stays_faded_for_weeks() {
        const DAY: u64 = 86_400_000;
        let latency = Latency::default();
        took(&latency, 1_000, 11_000, Outcome::Success);
        for day in 1..52 {
            assert_eq!(expected(&latency, 11_000 + day * DAY), Some(0), "after {day} days");
        }
        // A look at the clock that is older than the average, by as much as a reader may be behind.
        assert_eq!(expected(&latency, 10_000), Some(10_000));
    }

    #[test]
    fn a_cancellation_teaches_how_long_it_took_where_nothing_was_known() {
        let latency = Latency::default();
        took(&latency, 0, 1_000, Outcome::Cancelled);
        assert_eq!(expected(&latency, 1_000), Some(1_000));
        // One that waited for longer knows more, one that waited for less does not.
        took(&latency, 0, 1_100, Outcome::Cancelled);
        took(&latency, 1_000, 1_100, Outcome::Cancelled);
        assert_eq!(expected(&latency, 1_100), Some(1_100));
    }

    #[test]
    fn neither_failures_nor_cancellations_attract_traffic() {
        let latency = Latency::default();
        took(&latency, 0, 0, Outcome::Failure);
        assert_eq!(expected(&latency, 0), Some(1), "a floor where nothing was known");
        took(&latency, 0, 100, Outcome::Success);
        took(&latency, 100, 100, Outcome::Failure);
        assert_eq!(expected(&latency, 100), Some(200));
        took(&latency, 100, 100, Outcome::Unreachable);
        assert_eq!(expected(&latency, 100), Some(400));
        took(&latency, 99, 100, Outcome::Cancelled);
        assert_eq!(expected(&latency, 100), Some(400));
        took(&latency, 100, 700, Outcome::Cancelled);
        assert_eq!(expected(&latency, 700), Some(600));
        (0..20).for_each(|_| took(&latency, 700, 700, Outcome::Failure));
        assert_eq!(expected(&latency, 700), Some(10_000), "a ceiling, so that it is tried again");
    }
}
