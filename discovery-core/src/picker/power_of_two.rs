//! Power of two choices: the less loaded of two random members.
//!
//! Source: M. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (IEEE TPDS 2001). The load is the number of
//! requests in flight from this process, relative to the weight, as Envoy's least-request policy has it.

use super::columns::Columns;
use super::pair::{ByWeight, Draw, Evenly, is_even, is_less_loaded, moves, times_less_loaded};
use super::{Context, Member, Picker, PickerFactory};

/// Draws two different members, the first by weight, and takes the one with fewer requests in flight for its weight; of two that have as
/// many, the first.
///
/// Where all are idle, shares are as the weights are; under load, requests in flight are. A lighter member takes over from a heavier by odds
/// as long as it would be the busier one with the request, so that one of little weight is not flooded for being idle.
#[derive(Debug, Clone, Copy, Default)]
pub struct PowerOfTwo;

/// For members with the same weight.
struct Even;

impl Picker for Even {
    #[inline]
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let Some((a, b)) = Evenly.two(members.len()) else {
            return (members.len() == 1).then_some(0);
        };
        Some(if members[b].pending() < members[a].pending() { b } else { a })
    }
}

struct Weighted(ByWeight);

impl Picker for Weighted {
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let Some((a, b)) = self.0.two(members.len()) else {
            return (members.len() == 1).then_some(0);
        };
        let (first, second) = (members.get(a)?, members.get(b)?);
        let leaves = is_less_loaded(second, first) && moves(first, second, times_less_loaded(second, first));
        Some(if leaves { b } else { a })
    }
}

impl PickerFactory for PowerOfTwo {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        if is_even(members) { Box::new(Even) } else { Box::new(Weighted(ByWeight(Columns::of(members)))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::members;
    use crate::picker::testing::{assert_shares, counts};

    fn picked(members: &[Member]) -> Option<usize> {
        PowerOfTwo.build(members).pick(members, &Context::default())
    }

    #[test]
    fn f12_nobody_where_there_is_nobody() {
        assert_eq!(picked(&[]), None);
        assert_eq!(picked(&members(&[1])), Some(0));
        assert_eq!(PowerOfTwo.build(&members(&[1, 2])).pick(&[], &Context::default()), None);
    }

    #[test]
    fn the_loaded_member_is_avoided() {
        for weights in [[1, 1, 1], [1, 2, 4]] {
            let members = members(&weights);
            let _busy: Vec<_> = (0..50).map(|_| members[1].begin_at(None)).collect();
            // Every pair has a member without load, and a loaded one never wins against it.
            assert!((0..1_000).all(|_| picked(&members) != Some(1)), "{weights:?}");
        }
    }

    #[test]
    fn who_hangs_gets_nothing_more_however_heavy_it_is() {
        let members = members(&[100, 50]);
        let picker = PowerOfTwo.build(&members);
        let mut hung = Vec::new();
        let mut last = 0;
        for number in 0..10_000 {
            let at = picker.pick(&members, &Context::default()).unwrap();
            let pick = members[at].begin_at(None);
            if at == 0 {
                hung.push(pick);
                last = number;
            }
        }
        assert!(hung.len() < 20 && last < 500, "{} until {last}", hung.len());
    }

    #[test]
    fn shares_are_as_the_weights_at_any_load() {
        assert_shares(&PowerOfTwo);
    }

    #[test]
    fn f13_the_largest_weights_do_not_overflow() {
        let members = members(&[u32::MAX, u32::MAX, u32::MAX]);
        let counts = counts(&*PowerOfTwo.build(&members), &members, 10_000);
        assert!(counts.iter().all(|c| c.abs_diff(3_333) < 500), "{counts:?}");
    }
}
