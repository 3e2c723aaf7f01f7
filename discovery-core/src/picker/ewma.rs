//! Power of two choices by expected latency.
//!
//! Source of the cost: Finagle's "Peak EWMA" (twitter/finagle, `PeakEwma.scala`), the expected latency times the requests in flight and
//! the one to come. See [`Member::latency`] for what is expected.
//!
//! Two more are counted everywhere. Without them whoever is left alone because it is slow would attract by having nothing in flight: with 16
//! in flight elsewhere, it would be tried again while it is 17 times slower. The price of two is that the load of members with little in
//! flight counts for less: in a model of servers with 16 workers at 90 % the mean grows by one percent, and the slowest percent does not.

use super::columns::Columns;
use super::pair::{ByWeight, Draw, Evenly, is_even, moves};
use super::{Context, Member, Picker, PickerFactory};

/// Requests that count as in flight everywhere: the one to come, and two that keep the idle from looking fast. In a model of Linkerd's
/// set-up the slow server gets 21 requests after it was found out if this is 1; 11 if it is 2, 4 if it is 3, 2 if it is 5.
const COUNTED: f32 = 3.0;

/// Draws two different members, the first by weight, and takes the one whose requests in flight, and the next one, would take less time.
///
/// Requests in flight count for more at the lighter of the two, in proportion. A lighter member takes over from a heavier by odds, which grow
/// by how many times faster it is: of two that are as fast, one with a tenth of the weight takes one request in ten. That holds also for a member of
/// which nothing is known. It is tried first; while its first requests are in flight, it counts as fast as the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct PeakEwma;

struct Faster<D>(D);

impl<D: Draw> Picker for Faster<D> {
    #[inline]
    fn pick(&self, members: &[Member], context: &Context<'_>) -> Option<usize> {
        let Some((a, b)) = self.0.two(members.len()) else {
            return (members.len() == 1).then_some(0);
        };
        let (first, second, now) = (members.get(a)?, members.get(b)?, context.now());
        let may_move = |times: f32| D::IS_EVEN || moves(first, second, f64::from(times));
        let (in_a, in_b) = (first.pending(), second.pending());
        let (known_a, known_b) = (first.latency(now, in_a), second.latency(now, in_b));
        let (latency_a, latency_b) = match (known_a, known_b) {
            // Of two that are as fast as can be measured, the less busy. Who has not answered yet is known only to take longer than so far.
            (Some(a), Some(b)) => match (a.max(1.0), b.max(1.0), first.has_latency(), second.has_latency()) {
                (a, b, true, true) => (a, b),
                (a, b, true, false) => (a, b.max(a)),
                (a, b, false, true) => (a.max(b), b),
                (a, b, false, false) => (a.max(b), a.max(b)),
            },
            (None, Some(_)) if in_a == 0 => return Some(a),
            (Some(_), None) if in_b == 0 => return Some(if may_move(1.0) { b } else { a }),
            (one, other) => {
                let same = one.or(other).unwrap_or(1.0).max(1.0);
                (same, same)
            }
        };
        let heavier = first.weight().max(second.weight());
        let load = |member: &Member, pending: u32| match member.weight() {
            weight if D::IS_EVEN || weight == heavier => pending as f32,
            weight => pending as f32 * (heavier as f32 / weight as f32),
        };
        let cost_a = latency_a * (load(first, in_a) + COUNTED);
        let cost_b = latency_b * (load(second, in_b) + COUNTED);
        let leaves = cost_b < cost_a && may_move(latency_a / latency_b);
        Some(if leaves { b } else { a })
    }

    fn is_timed(&self) -> bool {
        true
    }
}

impl PickerFactory for PeakEwma {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        if is_even(members) { Box::new(Faster(Evenly)) } else { Box::new(Faster(ByWeight(Columns::of(members)))) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::balancer::testing::timed_member;
    use crate::clock::Clock;
    use crate::picker::testing::assert_shares;
    use crate::{Moment, Outcome};

    fn picks(members: &[Member], now: Moment) -> Vec<u32> {
        let (picker, mut counts) = (PeakEwma.build(members), vec![0; members.len()]);
        for _ in 0..3_000 {
            counts[picker.pick(members, &Context::default().at(now)).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn f12_nobody_where_there_is_nobody() {
        assert_eq!(PeakEwma.build(&[]).pick(&[], &Context::default()), None);
        let (clock, _) = Clock::manual();
        let one = [timed_member("a", 1, &clock)];
        assert_eq!(PeakEwma.build(&one).pick(&one, &Context::default()), Some(0));
    }

    #[test]
    fn who_never_answers_is_no_faster_than_others_however_soon_callers_give_up() {
        fastrand::seed(7);
        for patience in [0, 50, 5_000].map(Duration::from_micros) {
            let (clock, hand) = Clock::manual();
            let members: Vec<_> = (0..10).map(|id| timed_member(&id.to_string(), 1, &clock)).collect();
            let picker = PeakEwma.build(&members);
            let mut picked = 0;
            for _ in 0..5_000 {
                let at = picker.pick(&members, &Context::default().at(clock.now())).unwrap();
                let pick = members[at].begin_at(Some(clock.now()));
                hand.advance(if at == 0 { patience } else { Duration::from_millis(10) });
                if at == 0 {
                    picked += 1;
                    drop(pick);
                } else {
                    pick.finish(Outcome::Success);
                }
            }
            // A fair share is 500; as fast as the others it wins half of its draws, faster it would win them all.
            assert!(picked < 650, "{picked} after {patience:?}");
        }
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

    /// A newcomer that starts slowly, of which nothing is known, is tried by its weight; and who hangs is left, however heavy it is.
    #[test]
    fn p07_odds_hold_for_the_unknown_and_not_against_the_hanging() {
        fastrand::seed(7);
        let (clock, hand) = Clock::manual();
        let members: Vec<_> = [("a", 100), ("b", 10)].iter().map(|(id, w)| timed_member(id, *w, &clock)).collect();
        let pick = members[0].begin_at(Some(clock.now()));
        hand.advance(Duration::from_millis(10));
        pick.finish(Outcome::Success);
        let counts = picks(&members, clock.now());
        assert!((300..660).contains(&counts[1]), "{counts:?}");
        let pick = members[1].begin_at(Some(clock.now()));
        hand.advance(Duration::from_millis(10));
        pick.finish(Outcome::Success);
        let _hangs = members[0].begin_at(Some(clock.now()));
        hand.advance(Duration::from_secs(1));
        assert_eq!(picks(&members, clock.now())[0], 0);
    }

    /// How long the first request has waited so far is no latency yet: a newcomer would be flooded until it answers.
    #[test]
    fn p07_who_has_not_answered_yet_does_not_look_faster_than_others() {
        fastrand::seed(7);
        for (weight, most) in [(10, 15), (100, 78)] {
            let (clock, hand) = Clock::manual();
            let members: Vec<_> =
                [("a", 100), ("b", weight)].iter().map(|(id, w)| timed_member(id, *w, &clock)).collect();
            let pick = members[0].begin_at(Some(clock.now()));
            hand.advance(Duration::from_millis(100));
            pick.finish(Outcome::Success);
            let mut open: Vec<_> = (0..50).map(|_| members[0].begin_at(Some(clock.now()))).collect();
            let picker = PeakEwma.build(&members);
            for _ in 0..100 {
                let at = picker.pick(&members, &Context::default().at(clock.now())).unwrap();
                open.push(members[at].begin_at(Some(clock.now())));
                hand.advance(Duration::from_micros(100));
            }
            assert!((1..=most).contains(&members[1].pending()), "{} of 100 at {weight}", members[1].pending());
            open.clear();
        }
    }

    #[test]
    fn shares_are_as_the_weights_at_any_load() {
        assert_shares(&PeakEwma);
    }
}
