//! Power of two choices by expected latency.
//!
//! Source of the cost: Finagle's "Peak EWMA" (twitter/finagle, `PeakEwma.scala`), the expected latency times the requests in flight and
//! the one to come. See [`Member::latency`] for what is expected.
//!
//! Two more are counted everywhere. Without them whoever is left alone because it is slow would attract by having nothing in flight: with 16
//! in flight elsewhere, it would be tried again while it is 17 times slower. The price of two is that the load of members with little in
//! flight counts for less: in a model of servers with 16 workers at 90 % the mean grows by one percent, and the slowest percent does not.

use super::power_of_two::two;
use super::{Context, Member, Picker, PickerFactory};

/// Requests that count as in flight everywhere: the one to come, and two that keep the idle from looking fast. In a model of Linkerd's
/// set-up the slow server gets 21 requests after it was found out if this is 1; 11 if it is 2, 4 if it is 3, 2 if it is 5.
const COUNTED: f32 = 3.0;

/// Draws two different members and takes the one whose requests in flight, and the next one, would take less time for its weight.
///
/// A member of which nothing is known is tried first; while its first requests are in flight, it counts as fast as the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct PeakEwma;

impl Picker for PeakEwma {
    #[inline]
    fn pick(&self, members: &[Member], context: &Context<'_>) -> Option<usize> {
        let Some((a, b)) = two(members.len()) else {
            return (members.len() == 1).then_some(0);
        };
        let (first, second, now) = (&members[a], &members[b], context.now());
        let (in_a, in_b) = (first.pending(), second.pending());
        let (known_a, known_b) = (first.latency(now, in_a), second.latency(now, in_b));
        let (latency_a, latency_b) = match (known_a, known_b) {
            (Some(a), Some(b)) => (a, b),
            (None, Some(_)) if in_a == 0 => return Some(a),
            (Some(_), None) if in_b == 0 => return Some(b),
            (one, other) => {
                let same = one.or(other).unwrap_or(1.0);
                (same, same)
            }
        };
        // Of two that are as fast as can be measured, the less busy.
        let cost = |latency: f32, pending: u32, other_weight: u32| {
            latency.max(1.0) * (pending as f32 + COUNTED) * other_weight as f32
        };
        let (cost_a, cost_b) = (cost(latency_a, in_a, second.weight()), cost(latency_b, in_b, first.weight()));
        Some(if cost_b < cost_a { b } else { a })
    }

    fn is_timed(&self) -> bool {
        true
    }

    /// Of two without load the heavier or the faster always wins.
    fn shares_by_weight(&self) -> bool {
        false
    }
}

impl PickerFactory for PeakEwma {
    fn build(&self, _members: &[Member]) -> Box<dyn Picker> {
        Box::new(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::balancer::testing::timed_member;
    use crate::clock::Clock;
    use crate::{Moment, Outcome};

    fn picks(members: &[Member], now: Moment) -> Vec<u32> {
        let mut counts = vec![0; members.len()];
        for _ in 0..3_000 {
            counts[PeakEwma.pick(members, &Context::default().at(now)).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn f12_nobody_where_there_is_nobody() {
        assert_eq!(PeakEwma.pick(&[], &Context::default()), None);
        let (clock, _) = Clock::manual();
        assert_eq!(PeakEwma.pick(&[timed_member("a", 1, &clock)], &Context::default()), Some(0));
    }

    #[test]
    fn the_slow_is_avoided_and_tried_again_much_later() {
        let (clock, hand) = Clock::manual();
        let members: Vec<_> = ["a", "b", "c"].iter().map(|id| timed_member(id, 1, &clock)).collect();
        for (member, millis) in members.iter().zip([100, 2_000, 100]) {
            let pick = member.begin_at(Some(clock.now()));
            hand.advance(Duration::from_millis(millis));
            pick.finish(Outcome::Success);
        }
        assert_eq!(picks(&members, clock.now())[1], 0);
        // The others go on answering as fast as ever; what is known of the slow one fades.
        for second in 0.. {
            hand.advance(Duration::from_secs(1));
            for member in [&members[0], &members[2]] {
                let pick = member.begin_at(Some(Moment::from_nanos(clock.now().nanos() - 100_000_000)));
                pick.finish(Outcome::Success);
            }
            if picks(&members, clock.now())[1] > 0 {
                assert!((20..90).contains(&second), "tried again after {second} s");
                break;
            }
        }
    }

    #[test]
    fn being_idle_does_not_make_the_slow_fast() {
        let (clock, hand) = Clock::manual();
        let members: Vec<_> = ["a", "b"].iter().map(|id| timed_member(id, 1, &clock)).collect();
        for (member, millis) in members.iter().zip([2_000, 167]) {
            let pick = member.begin_at(Some(clock.now()));
            hand.advance(Duration::from_millis(millis));
            pick.finish(Outcome::Success);
        }
        // As many as are in flight at a thousand a second to eleven servers.
        let _busy: Vec<_> = (0..16).map(|_| members[1].begin_at(Some(clock.now()))).collect();
        assert_eq!(picks(&members, clock.now())[0], 0);
    }

    #[test]
    fn who_has_stopped_answering_is_left_before_anybody_waited_for_long() {
        let (clock, hand) = Clock::manual();
        let members: Vec<_> = ["a", "b"].iter().map(|id| timed_member(id, 1, &clock)).collect();
        for member in &members {
            let pick = member.begin_at(Some(clock.now()));
            hand.advance(Duration::from_millis(100));
            pick.finish(Outcome::Success);
        }
        let _stuck = members[0].begin_at(Some(clock.now()));
        let _busy: Vec<_> = (0..3).map(|_| members[1].begin_at(Some(clock.now()))).collect();
        assert_eq!(picks(&members, clock.now())[1], 0, "three in flight are more than one");
        hand.advance(Duration::from_millis(400));
        drop(_busy);
        assert_eq!(picks(&members, clock.now())[0], 0);
    }

    #[test]
    fn weights_count_and_nobody_is_hurt_by_the_largest() {
        let (clock, _) = Clock::manual();
        let members: Vec<_> = ["a", "b"].iter().map(|id| timed_member(id, u32::MAX, &clock)).collect();
        for member in &members {
            member.begin_at(Some(clock.now())).finish(Outcome::Success);
        }
        let counts = picks(&members, clock.now());
        assert!(counts.iter().all(|count| count.abs_diff(1_500) < 200), "{counts:?}");
    }
}
