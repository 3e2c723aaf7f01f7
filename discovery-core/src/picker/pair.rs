//! Two different members, of which a picker takes the better.
//!
//! The first is drawn by weight, the second is any other, so a member has its share wherever the first is taken: when all are idle, or as
//! good as each other. From there a request moves to the second only for a reason, and from a heavier to a lighter one by odds: who has a
//! tenth of the weight takes one in ten. In equilibrium as many move in one direction as in the other (N. Metropolis et al., "Equation of
//! State Calculations by Fast Computing Machines", J. Chem. Phys. 1953), and of power of two nobody takes more than about twice
//! its share, which is what slow start relies on. The odds grow by how many times better the second is, so that who hangs is left alone whatever its weight is.

use super::Member;
use super::columns::Columns;

/// How two are drawn.
pub(super) trait Draw: Send + Sync + 'static {
    /// Whether all weights are the same, so that none has to be looked at.
    const IS_EVEN: bool;

    /// Two different indexes below `n`; `None` if there are none.
    fn two(&self, n: usize) -> Option<(usize, usize)>;
}

/// All weights are the same, so no table has to be read.
#[derive(Debug)]
pub(super) struct Evenly;

/// The first by weight.
#[derive(Debug)]
pub(super) struct ByWeight(pub(super) Columns);

/// Whether all weights are the same.
pub(super) fn is_even(members: &[Member]) -> bool {
    members.iter().all(|member| Some(member.weight()) == members.first().map(Member::weight))
}

/// A number below `n` from 32 random bits, by a product.
///
/// Source: D. Lemire, "Fast Random Integer Generation in an Interval" (ACM TOMACS 2019), without its rejection: below a million members the
/// shares differ by less than one in 4,000.
#[inline]
fn below(random: u64, n: u32) -> usize {
    (((random & u64::from(u32::MAX)) * u64::from(n)) >> 32) as usize
}

/// Any other than `a` of `n`: drawn from the others, so that it is never the first again.
#[inline]
fn other(a: usize, random: u64, n: u32) -> usize {
    let b = a + 1 + below(random, n - 1);
    let n = n as usize;
    if b >= n { b - n } else { b }
}

fn several(n: usize) -> Option<u32> {
    u32::try_from(n).ok().filter(|n| *n >= 2)
}

impl Draw for Evenly {
    const IS_EVEN: bool = true;

    #[inline]
    fn two(&self, n: usize) -> Option<(usize, usize)> {
        let (n, random) = (several(n)?, fastrand::u64(..));
        let a = below(random, n);
        Some((a, other(a, random >> 32, n)))
    }
}

impl Draw for ByWeight {
    const IS_EVEN: bool = false;

    #[inline]
    fn two(&self, n: usize) -> Option<(usize, usize)> {
        let (n, a) = (several(n)?, self.0.draw()?);
        Some((a, other(a, u64::from(fastrand::u32(..)), n)))
    }
}

/// Whether a request goes from the first to the second, which is so many `times` better.
#[inline]
pub(super) fn moves(first: &Member, second: &Member, times: f64) -> bool {
    let (from, to) = (first.weight(), second.weight());
    to >= from || fastrand::f64() < f64::from(to) / f64::from(from) * times.max(1.0)
}

/// Whether the second has fewer requests in flight for its weight. Both products fit 64 bits.
#[inline]
pub(super) fn is_less_loaded(second: &Member, first: &Member) -> bool {
    u64::from(second.pending()) * u64::from(first.weight()) < u64::from(first.pending()) * u64::from(second.weight())
}

/// How many times less loaded for its weight the second is, once it has the request. Below 1, it is less loaded only until then.
#[inline]
pub(super) fn times_less_loaded(second: &Member, first: &Member) -> f64 {
    let load = |pending: f64, member: &Member| pending / f64::from(member.weight());
    load(f64::from(first.pending()), first) / load(f64::from(second.pending()) + 1.0, second)
}
