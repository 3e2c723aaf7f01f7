//! Least requests: whoever has the fewest requests in flight for its weight.

use super::columns::Columns;
use super::pair::{is_less_loaded, moves, times_less_loaded};
use super::{Context, Member, Picker, PickerFactory};

/// Looks at every member and takes the one with the fewest requests in flight for its weight; among equals, one at random by weight.
///
/// Where all are idle, shares are as the weights are. A member that is lighter than one drawn by weight takes its request by odds as long as
/// it would be the busier one with it, so that one of little weight is not flooded for being idle.
///
/// It costs the number of members. From some dozens on [`PowerOfTwo`](super::PowerOfTwo) is nearly as even and costs no more with a
/// thousand. As each process counts its own requests only, many clients may find the same member idle at the same moment, which
/// drawing two at random avoids.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeastRequests;

struct Least(Columns);

impl Picker for Least {
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let a = self.0.draw()?;
        let b = least(members, Some(a), 1)?;
        let (first, second) = (members.get(a)?, members.get(b)?);
        if a == b || moves(first, second, times_less_loaded(second, first)) {
            return Some(b);
        }
        least(members, None, first.weight()).or(Some(a))
    }
}

/// The least loaded of those with at least this weight: `drawn` if nobody is less loaded, else of several one at random by weight, each by the
/// chance that it has in the sum of those so far.
fn least(members: &[Member], drawn: Option<usize>, lightest: u32) -> Option<usize> {
    let mut best = drawn.and_then(|at| Some((at, members.get(at)?)));
    let mut sum = 0u64;
    for (at, member) in members.iter().enumerate().filter(|(_, member)| member.weight() >= lightest) {
        let weight = u64::from(member.weight());
        if best.is_none_or(|(_, other)| is_less_loaded(member, other)) {
            (best, sum) = (Some((at, member)), weight);
        } else if best.is_some_and(|(other_at, other)| Some(other_at) != drawn && !is_less_loaded(other, member)) {
            sum = sum.saturating_add(weight);
            if fastrand::u64(..sum.max(1)) < weight {
                best = Some((at, member));
            }
        }
    }
    best.map(|(at, _)| at)
}

impl PickerFactory for LeastRequests {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        Box::new(Least(Columns::of(members)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::members;
    use crate::picker::testing::{assert_shares, counts};

    fn picked(members: &[Member]) -> Option<usize> {
        LeastRequests.build(members).pick(members, &Context::default())
    }

    #[test]
    fn f12_nobody_where_there_is_nobody() {
        assert_eq!(picked(&[]), None);
        assert_eq!(picked(&members(&[1])), Some(0));
        assert_eq!(LeastRequests.build(&members(&[1, 2])).pick(&[], &Context::default()), None);
    }

    #[test]
    fn requests_stand_as_the_weights_do() {
        let members = members(&[1, 2, 4]);
        let _busy: Vec<_> = (0..700).map(|_| members[picked(&members).unwrap()].begin_at(None)).collect();
        let pending: Vec<_> = members.iter().map(Member::pending).collect();
        assert!(pending.iter().zip([100u32, 200, 400]).all(|(a, b)| a.abs_diff(b) <= 6), "{pending:?}");
    }

    #[test]
    fn equals_share_evenly_whoever_is_busy_beside_them() {
        let members = members(&[1; 4]);
        let picker = LeastRequests.build(&members);
        let _busy = members[1].begin_at(None);
        let counts = counts(&*picker, &members, 30_000);
        assert!(counts[1] == 0 && [0, 2, 3].iter().all(|at| counts[*at].abs_diff(10_000) < 500), "{counts:?}");
    }

    #[test]
    fn shares_are_as_the_weights_at_any_load() {
        assert_shares(&LeastRequests);
    }

    #[test]
    fn f13_equals_are_taken_at_random_and_the_largest_weights_do_not_overflow() {
        let members = members(&[u32::MAX; 3]);
        let counts = counts(&*LeastRequests.build(&members), &members, 9_000);
        assert!(counts.iter().all(|count| count.abs_diff(3_000) < 300), "{counts:?}");
    }
}
