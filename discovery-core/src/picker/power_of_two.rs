//! Power of two choices: the less loaded of two random members.
//!
//! Source: M. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (IEEE TPDS 2001). The load is the number of
//! requests in flight from this process, relative to the weight, as Envoy's least-request policy has it.

use super::{Context, Member, Picker, PickerFactory};

/// Draws two different members and takes the one with fewer requests in flight for its weight.
#[derive(Debug, Clone, Copy, Default)]
pub struct PowerOfTwo;

/// Draws two different indexes below `n`; `None` if there are none.
///
/// Source of drawing a number below `n` by a product: D. Lemire, "Fast Random Integer Generation in an Interval" (ACM TOMACS 2019),
/// without its rejection: below a million members the shares differ by less than one in 4,000.
#[inline]
pub(super) fn two(n: usize) -> Option<(usize, usize)> {
    let n = u32::try_from(n).ok().filter(|n| *n >= 2)?;
    let random = fastrand::u64(..);
    let below = |random: u64, n: u32| (((random & u64::from(u32::MAX)) * u64::from(n)) >> 32) as usize;
    let a = below(random, n);
    // The second is drawn from the others, so that it is never the first again.
    let b = a + 1 + below(random >> 32, n - 1);
    let n = n as usize;
    Some((a, if b >= n { b - n } else { b }))
}

impl Picker for PowerOfTwo {
    #[inline]
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let Some((a, b)) = two(members.len()) else {
            return (members.len() == 1).then_some(0);
        };
        let (first, second) = (&members[a], &members[b]);
        // (pending + 1) / weight, compared without dividing: pending is capped at 2^32 - 1, so the products fit 64 bits.
        let cost_a = u64::from(first.pending().saturating_add(1)) * u64::from(second.weight());
        let cost_b = u64::from(second.pending().saturating_add(1)) * u64::from(first.weight());
        Some(if cost_b < cost_a { b } else { a })
    }

    /// Of two without load the heavier always wins.
    fn shares_by_weight(&self) -> bool {
        false
    }
}

impl PickerFactory for PowerOfTwo {
    fn build(&self, _members: &[Member]) -> Box<dyn Picker> {
        Box::new(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::members;

    #[test]
    fn f12_nobody_where_there_is_nobody() {
        assert_eq!(PowerOfTwo.pick(&[], &Context::default()), None);
        assert_eq!(PowerOfTwo.pick(&members(&[1]), &Context::default()), Some(0));
    }

    #[test]
    fn the_loaded_member_is_avoided() {
        let members = members(&[1, 1, 1]);
        let _busy: Vec<_> = (0..5).map(|_| members[1].begin_at(None)).collect();
        for _ in 0..1_000 {
            // Every pair has a member without load, and a loaded one never wins against it.
            assert_ne!(PowerOfTwo.pick(&members, &Context::default()), Some(1));
        }
    }

    #[test]
    fn f13_the_largest_weights_do_not_overflow() {
        let members = members(&[u32::MAX, u32::MAX, u32::MAX]);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            counts[PowerOfTwo.pick(&members, &Context::default()).unwrap()] += 1;
        }
        assert!(counts.iter().all(|c| c.abs_diff(3_333) < 500), "{counts:?}");
    }
}
