//! Consistent hashing with bounded loads.
//!
//! Source: V. Mirrokni, M. Thorup and M. Zadimoghaddam, "Consistent Hashing with Bounded Loads" (arXiv 1608.01350, 2016): with `total`
//! requests in flight, no member takes one more than `ceil(c * (total + 1) * share)`; a key whose member is full goes on to the next.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use super::{ConsistentHash, Table, hash, mix};
use crate::picker::{Context, Member, Picker, PickerFactory};

/// The least that the manual of HAProxy, which had this first, calls reasonable for its `hash-balance-factor`.
const DEFAULT_FACTOR: f64 = 1.25;
/// Members that are counted at once.
const WINDOW: usize = 64;
/// Members that are counted for each pick of a busy member, on average. All of eight members, so with those the total is exact.
const COUNTED: usize = 8;
/// Members that are tried in the key's own order before all are gone through. If four in five are full, one key in a thousand gets there.
const TRIES: u32 = 32;
/// The step from one try to the next: SplitMix64's, so that each try is a hash of its own.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A [`ConsistentHash`] under which no member gets much more than its share at any moment, however popular some keys are.
///
/// A member is full while one more request would be more than the factor times its share of all that are in flight from this process,
/// rounded up. The keys of a full member go on to others, each key in an order of its own that is the same in every process, and
/// come back once it has room. Only if one key has so many requests that most members are full of them, a pick looks at all.
///
/// What is in flight in all is not counted on every pick: with up to eight members it is exact, with n it is as it was some n / 8 picks of
/// busy members ago. A member without a request in flight is never full, and nothing is counted for it.
#[derive(Debug)]
pub struct BoundedLoad {
    hash: ConsistentHash,
    factor: f64,
}

impl BoundedLoad {
    /// Bounds the loads of this hash, by the factor 1.25.
    pub fn new(hash: ConsistentHash) -> Self {
        Self { hash, factor: DEFAULT_FACTOR }
    }

    /// Sets how many times its share a member may have in flight: at least 1; what is no number counts as the default. The less, the
    /// more even, and the more keys stray.
    #[must_use]
    pub fn with_factor(mut self, factor: f64) -> Self {
        self.factor = if factor.is_nan() { DEFAULT_FACTOR } else { factor.max(1.0) };
        self
    }
}

impl PickerFactory for BoundedLoad {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        let total: f64 = members.iter().map(|member| f64::from(member.weight())).sum();
        let limits = members.iter().map(|member| self.factor * f64::from(member.weight()) / total.max(1.0)).collect();
        Box::new(Bounded { table: self.hash.table(members), limits, tally: Tally::new(members) })
    }

    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        Some(Box::new(Self { hash: self.hash.anew(), factor: self.factor }))
    }
}

#[derive(Debug)]
struct Bounded {
    table: Table,
    /// The factor times each member's share.
    limits: Box<[f64]>,
    tally: Tally,
}

impl Picker for Bounded {
    fn pick(&self, members: &[Member], context: &Context<'_>) -> Option<usize> {
        let hash = hash(context);
        let first = self.table.owner(hash)?;
        if members.get(first)?.pending() == 0 {
            return Some(first);
        }
        let total = self.tally.total(members);
        let has_room = |at: usize, total: i64| {
            let (member, limit) = (members.get(at)?, self.limits.get(at)?);
            (f64::from(member.pending()) < (limit * (total as f64 + 1.0)).ceil()).then_some(at)
        };
        if let Some(at) = has_room(first, total) {
            return Some(at);
        }
        let mut last = first;
        for attempt in 1..=TRIES {
            last = self.table.owner(mix(hash.wrapping_add(u64::from(attempt).wrapping_mul(STEP))))?;
            if let Some(at) = has_room(last, total) {
                return Some(at);
            }
        }
        // All are full only if the total has fallen behind, so everybody is counted before everybody is looked at.
        let total = self.tally.recount(members);
        (last..members.len()).chain(0..last).find_map(|at| has_room(at, total)).or(Some(first))
    }
}

/// How many requests are in flight in all, counted a window of members at a time.
///
/// Each window's count is exchanged and the difference added, so the total is the sum of the windows whoever counts at the same time; it
/// publishes nothing else, so relaxed ordering suffices.
#[derive(Debug)]
struct Tally {
    windows: Box<[AtomicU32]>,
    total: AtomicI64,
}

impl Tally {
    fn new(members: &[Member]) -> Self {
        let windows: Box<[AtomicU32]> = members.chunks(WINDOW).map(|window| AtomicU32::new(count(window))).collect();
        let total = windows.iter().map(|window| i64::from(window.load(Ordering::Relaxed))).sum();
        Self { windows, total: AtomicI64::new(total) }
    }

    fn total(&self, members: &[Member]) -> i64 {
        let width = members.len().min(WINDOW);
        if width <= COUNTED || fastrand::usize(..width) < COUNTED {
            let at = fastrand::usize(..self.windows.len().max(1));
            if let (Some(window), Some(members)) = (self.windows.get(at), members.chunks(WINDOW).nth(at)) {
                self.correct(window, members);
            }
        }
        self.total.load(Ordering::Relaxed).max(0)
    }

    /// The total after counting everybody.
    #[cold]
    fn recount(&self, members: &[Member]) -> i64 {
        for (window, members) in self.windows.iter().zip(members.chunks(WINDOW)) {
            self.correct(window, members);
        }
        self.total.load(Ordering::Relaxed).max(0)
    }

    fn correct(&self, window: &AtomicU32, members: &[Member]) {
        let now = count(members);
        let change = i64::from(now) - i64::from(window.swap(now, Ordering::Relaxed));
        // Adding nothing would still take the line from the others.
        if change != 0 {
            self.total.fetch_add(change, Ordering::Relaxed);
        }
    }
}

fn count(window: &[Member]) -> u32 {
    window.iter().fold(0, |sum, member| sum.saturating_add(member.pending()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::members;

    fn built(weights: &[u32], factor: f64) -> (Vec<Member>, Box<dyn Picker>) {
        let members = members(weights);
        let picker = BoundedLoad::new(ConsistentHash::with_slots(1 << 12)).with_factor(factor).build(&members);
        (members, picker)
    }

    #[test]
    fn f12_nobody_where_there_is_nobody() {
        let (nobody, picker) = built(&[], 1.25);
        assert_eq!(picker.pick(&nobody, &Context::default().with_key(b"k")), None);
        let (one, picker) = built(&[1], 1.25);
        let _held: Vec<_> = (0..100).map(|_| one[0].begin_at(None)).collect();
        assert_eq!(picker.pick(&one, &Context::default().with_key(b"k")), Some(0));
    }

    /// With few members the bound is exact at every moment, even if all requests have one key.
    #[test]
    fn one_popular_key_keeps_to_the_bound() {
        for (weights, factor) in
            [(vec![1; 5], 1.25), (vec![1, 2, 5], 1.1), (vec![u32::MAX, 1, u32::MAX], 1.5), (vec![3; 8], 1.0)]
        {
            let (members, picker) = built(&weights, factor);
            let sum: f64 = weights.iter().map(|w| f64::from(*w)).sum();
            let mut held = Vec::new();
            for total in 0..200 {
                let at = picker.pick(&members, &Context::default().with_key(b"popular")).unwrap();
                held.push(members[at].begin_at(None));
                let bound = (factor * f64::from(weights[at]) / sum * (f64::from(total) + 1.0)).ceil();
                assert!(f64::from(members[at].pending()) <= bound, "{weights:?}: {} of {total}", members[at].pending());
            }
        }
    }

    #[test]
    fn many_members_keep_to_the_bound_but_for_what_is_not_yet_counted() {
        let (members, picker) = built(&[1; 200], 1.25);
        let mut held = Vec::new();
        for _ in 0..4_000 {
            let at = picker.pick(&members, &Context::default().with_key(b"popular")).unwrap();
            held.push(members[at].begin_at(None));
        }
        // Twenty on average, 25 allowed; a total that has fallen behind allows fewer, never more.
        let most = members.iter().map(Member::pending).max().unwrap();
        assert!(most <= 25, "{most}");
    }

    #[test]
    fn a_key_stays_where_it_belongs_while_there_is_room_and_comes_back() {
        let (members, picker) = built(&[1; 50], 1.25);
        let plain = ConsistentHash::with_slots(1 << 12).build(&members);
        for key in 0..200u32 {
            let key = key.to_le_bytes();
            let context = Context::default().with_key(&key);
            let home = plain.pick(&members, &context).unwrap();
            assert_eq!(picker.pick(&members, &context), Some(home));
            let held: Vec<_> = (0..20).map(|_| members[home].begin_at(None)).collect();
            let strayed = picker.pick(&members, &context);
            assert_ne!(strayed, Some(home));
            assert_eq!(picker.pick(&members, &context), strayed, "the next is the key's own");
            drop(held);
            assert_eq!(picker.pick(&members, &context), Some(home));
        }
    }
}
