//! Power of two choices: the less loaded of two random members.
//!
//! Source: M. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (IEEE TPDS 2001). The load is the number of
//! requests in flight from this process, relative to the weight, as Envoy's least-request policy has it.

use super::{Context, Member, Picker, PickerFactory};

/// Draws two different members and takes the one with fewer requests in flight for its weight.
#[derive(Debug, Clone, Copy, Default)]
pub struct PowerOfTwo;

impl Picker for PowerOfTwo {
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let n = members.len();
        if n < 2 {
            return (n == 1).then_some(0);
        }
        let a = fastrand::usize(..n);
        // The second is drawn from the others, so that it is never the first again.
        let b = (a + 1 + fastrand::usize(..n - 1)) % n;
        let (first, second) = (&members[a], &members[b]);
        // (pending + 1) / weight, compared without dividing; both factors fit 33 bits, so the products fit 128.
        let cost_a = (u128::from(first.pending()) + 1) * u128::from(second.instance().weight());
        let cost_b = (u128::from(second.pending()) + 1) * u128::from(first.instance().weight());
        Some(if cost_b < cost_a { b } else { a })
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
        let _busy: Vec<_> = (0..5).map(|_| members[1].begin()).collect();
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
