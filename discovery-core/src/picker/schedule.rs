//! The order in which weighted members take their turns.
//!
//! R. Tijdeman's solution of the chairman assignment problem ("The chairman assignment problem", Discrete Mathematics 32, 1980): with n
//! members, after every prefix of t picks each member is at most `1 - 1/(2n-2)` picks away from its ideal share `t * weight / sum`. At
//! step t a member that was picked k times is *released* once `t * weight / sum >= k + λ`, and among the released the one with the earliest
//! *deadline* `(k + 1 - λ) * sum / weight` is picked, with `λ = 1/(2n-2)`. After `sum` picks it begins anew.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The turns of members with these weights, without an end unless nobody has weight.
#[derive(Debug)]
pub(super) struct Schedule {
    weights: Box<[u64]>,
    sum: u64,
    /// `1/λ`, so that everything stays a whole number; 0 for a single member.
    steps: u128,
    /// Picks so far in this round.
    step: u64,
    counts: Box<[u64]>,
    waiting: BinaryHeap<Reverse<(u128, u32)>>,
    released: BinaryHeap<Reverse<Released>>,
}

/// A deadline without what is the same for all members: `(k + 1 - λ) / weight`. A smaller one comes first.
#[derive(Debug, PartialEq, Eq)]
struct Released {
    numerator: u128,
    weight: u64,
    member: u32,
}

impl Ord for Released {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let (a, b) = (self.numerator * u128::from(other.weight), other.numerator * u128::from(self.weight));
        a.cmp(&b).then(self.member.cmp(&other.member))
    }
}

impl PartialOrd for Released {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Schedule {
    /// Weights have at most 32 bits and there are at most 2^32 of them, so every product below stays under 2^128.
    pub(super) fn new(weights: &[u64]) -> Self {
        let active = weights.iter().filter(|weight| **weight > 0).count();
        let mut schedule = Self {
            weights: weights.into(),
            sum: weights.iter().sum(),
            steps: 2 * (active as u128).max(1) - 2,
            step: 0,
            counts: vec![0; weights.len()].into(),
            // Each holds everybody at most, and must not grow within a pick.
            waiting: BinaryHeap::with_capacity(active),
            released: BinaryHeap::with_capacity(active),
        };
        schedule.begin();
        schedule
    }

    /// How many picks a round has.
    pub(super) fn round(&self) -> u64 {
        self.sum
    }

    fn begin(&mut self) {
        self.step = 0;
        self.counts.fill(0);
        self.released.clear();
        self.waiting.clear();
        for (weight, member) in self.weights.iter().zip(0..) {
            if *weight > 0 {
                self.waiting.push(Reverse((self.release(member), member)));
            }
        }
    }

    /// The step from which on a member may be picked for the next time.
    fn release(&self, member: u32) -> u128 {
        let (weight, count) = (u128::from(self.weights[member as usize]), u128::from(self.counts[member as usize]));
        if self.steps == 0 {
            return count + 1;
        }
        (u128::from(self.sum) * (count * self.steps + 1)).div_ceil(weight * self.steps)
    }

    fn deadline(&self, member: u32) -> Released {
        let (weight, count) = (self.weights[member as usize], u128::from(self.counts[member as usize]));
        Released { numerator: ((count + 1) * self.steps).saturating_sub(1), weight, member }
    }
}

impl Iterator for Schedule {
    type Item = u32;

    /// Costs the logarithm of the number of members.
    fn next(&mut self) -> Option<u32> {
        if self.step == self.sum {
            self.begin();
        }
        self.step += 1;
        while let Some(Reverse((at, member))) = self.waiting.peek().copied() {
            if at > u128::from(self.step) {
                break;
            }
            self.waiting.pop();
            self.released.push(Reverse(self.deadline(member)));
        }
        // Tijdeman's theorem: some member is always released, if there is any.
        let Reverse(Released { member, .. }) = self.released.pop()?;
        self.counts[member as usize] += 1;
        self.waiting.push(Reverse((self.release(member), member)));
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The largest distance from the ideal over so many prefixes, times the sum of the weights.
    fn worst(weights: &[u64], picks: usize) -> u128 {
        let mut schedule = Schedule::new(weights);
        let sum = u128::from(schedule.round());
        let mut counts = vec![0u128; weights.len()];
        let mut worst = 0;
        for t in 1..=picks as u128 {
            counts[schedule.next().unwrap() as usize] += 1;
            for (count, weight) in counts.iter().zip(weights) {
                worst = worst.max((count * sum).abs_diff(t * u128::from(*weight)));
            }
        }
        worst
    }

    #[test]
    fn p05_any_weights_stay_below_one_pick() {
        let max = u64::from(u32::MAX);
        for weights in [vec![max, 1, 7], vec![max; 3], vec![max, max - 1, 3, 0, 1_000_003], vec![5], vec![0, 9]] {
            let sum: u64 = weights.iter().sum();
            assert!(worst(&weights, 50_000) < u128::from(sum), "{weights:?}");
        }
        assert_eq!(Schedule::new(&[0, 0]).next(), None);
        assert_eq!(Schedule::new(&[]).next(), None);
    }

    #[test]
    fn p01_heaps_do_not_grow_while_turns_are_taken() {
        let mut weights = vec![1_000_003u64; 700];
        weights.extend((0..700).map(|n| n % 3));
        let mut schedule = Schedule::new(&weights);
        let capacities = |schedule: &Schedule| [schedule.waiting.capacity(), schedule.released.capacity()];
        let before = capacities(&schedule);
        assert!(before.iter().all(|capacity| *capacity >= schedule.waiting.len()));
        for _ in 0..20_000 {
            schedule.next().unwrap();
            assert_eq!(capacities(&schedule), before);
        }
    }

    #[test]
    fn p05_a_round_ends_exactly_and_begins_anew() {
        let weights = [3u64, 1, 4];
        let turns: Vec<_> = Schedule::new(&weights).take(24).collect();
        assert_eq!(turns[..8], turns[8..16]);
        for (weight, member) in weights.iter().zip(0u32..) {
            assert_eq!(turns[..8].iter().filter(|turn| **turn == member).count() as u64, *weight);
        }
    }

    proptest! {
        #[test]
        fn p05_no_prefix_is_a_whole_pick_from_the_ideal(weights in proptest::collection::vec(any::<u32>(), 1..30)) {
            let weights: Vec<_> = weights.into_iter().map(u64::from).collect();
            let sum: u64 = weights.iter().sum();
            prop_assert!(sum == 0 || worst(&weights, 2_000) < u128::from(sum));
        }
    }
}
