//! Least requests: whoever has the fewest requests in flight for its weight.

use super::{Context, Member, Picker, PickerFactory};

/// Looks at every member and takes the one with the fewest requests in flight for its weight; among equals, one at random.
///
/// It costs the number of members. From some dozens on [`PowerOfTwo`](super::PowerOfTwo) is nearly as even and costs no more with a
/// thousand. As each process counts its own requests only, many clients may find the same member idle at the same moment, which
/// drawing two at random avoids.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeastRequests;

impl Picker for LeastRequests {
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        if members.is_empty() {
            return None;
        }
        // Beginning anywhere makes the first of several equals a random one.
        let start = fastrand::usize(..members.len());
        let mut best = start;
        let (mut pending, mut weight) = load(&members[start]);
        for at in (start + 1..members.len()).chain(0..start) {
            let (other_pending, other_weight) = load(&members[at]);
            // (pending + 1) / weight, compared without dividing; 33 and 32 bits fit 64 but for a member that has 2^32 in flight.
            if other_pending.saturating_mul(weight) < pending.saturating_mul(other_weight) {
                (best, pending, weight) = (at, other_pending, other_weight);
            }
        }
        Some(best)
    }

    fn shares_by_weight(&self) -> bool {
        // An idle newcomer has the fewest requests however small its weight is.
        false
    }
}

fn load(member: &Member) -> (u64, u64) {
    (u64::from(member.pending()) + 1, u64::from(member.weight()))
}

impl PickerFactory for LeastRequests {
    fn build(&self, _members: &[Member]) -> Box<dyn Picker> {
        Box::new(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::members;

    fn picked(members: &[Member]) -> Option<usize> {
        LeastRequests.pick(members, &Context::default())
    }

    #[test]
    fn f12_nobody_where_there_is_nobody() {
        assert_eq!(picked(&[]), None);
        assert_eq!(picked(&members(&[1])), Some(0));
    }

    #[test]
    fn requests_stand_as_the_weights_do() {
        let members = members(&[1, 2, 4]);
        let _busy: Vec<_> = (0..700).map(|_| members[picked(&members).unwrap()].begin_at(None)).collect();
        let pending: Vec<_> = members.iter().map(Member::pending).collect();
        assert!(pending.iter().zip([100u32, 200, 400]).all(|(a, b)| a.abs_diff(b) <= 2), "{pending:?}");
    }

    #[test]
    fn f13_equals_are_taken_at_random_and_the_largest_weights_do_not_overflow() {
        let members = members(&[u32::MAX; 3]);
        let mut counts = [0u32; 3];
        (0..9_000).for_each(|_| counts[picked(&members).unwrap()] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(3_000) < 300), "{counts:?}");
    }
}
