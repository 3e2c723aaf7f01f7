//! Smooth weighted round robin from a schedule that is computed once for a membership.
//!
//! The schedule is R. Tijdeman's solution of the chairman assignment problem ("The chairman assignment problem", Discrete
//! Mathematics 32, 1980): with n members, after every prefix of t picks each member is at most `1 - 1/(2n-2)` picks away from its
//! ideal share `t * weight / sum`. At step t a member that was picked k times is *released* once `t * weight / sum >= k + λ`, and among
//! the released the one with the earliest *deadline* `(k + 1 - λ) * sum / weight` is picked, with `λ = 1/(2n-2)`.
//!
//! A pick then is one addition and one look into a table. After `sum / gcd` picks the schedule repeats.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Context, Member, Picker, PickerFactory};

/// The longest schedule. Weights whose reduced sum is larger are scaled down to it, each by less than one part in this many of the sum.
///
/// It bounds a rebuild to about ten milliseconds and the table to 256 KiB; fleets with hand-written weights stay far below.
const MAX_SCHEDULE: u64 = 1 << 16;

/// Takes the members in proportion to their weights, spread as evenly as possible (P5).
///
/// Any weights up to `u32::MAX` work without expanding them. If their sum divided by their greatest common divisor is at most
/// 65,536, no prefix is a whole pick from the ideal; beyond that the shares are rounded, which adds at most one pick in 65,536.
#[derive(Debug, Default)]
pub struct WeightedRoundRobin {
    /// What was built last; written by `build` alone.
    last: Mutex<Option<Last>>,
}

#[derive(Debug)]
struct Last {
    members: Vec<Member>,
    weights: Vec<u64>,
    schedule: Arc<Schedule>,
}

impl WeightedRoundRobin {
    /// Makes a factory.
    pub fn new() -> Self {
        Self::default()
    }
}

#[derive(Debug)]
struct Schedule {
    turns: Box<[u32]>,
    /// Counts picks; nothing is published with it, so relaxed ordering suffices.
    next: AtomicUsize,
}

impl Picker for Arc<Schedule> {
    fn pick(&self, _members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = ticket.checked_rem(self.turns.len())?;
        // On the way to the maximum the counter is set back by whole schedules, so that its wrap never cuts one short.
        if ticket == self.limit() {
            self.next.fetch_sub(self.limit(), Ordering::Relaxed);
        }
        Some(self.turns[turn] as usize)
    }
}

impl Schedule {
    fn limit(&self) -> usize {
        (usize::MAX / 2) - (usize::MAX / 2) % self.turns.len()
    }
}

impl PickerFactory for WeightedRoundRobin {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        let weights: Vec<_> = members.iter().map(|member| member.weight()).collect();
        let weights = reduced(&weights);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // The same members with the same shares go on where they are: a change of metadata is no reason to begin anew.
        let known = last.as_ref().filter(|last| last.weights == weights && same_ids(&last.members, members));
        let schedule = match known {
            Some(last) => last.schedule.clone(),
            None => {
                let turns: Box<[u32]> = schedule(&weights).into();
                // Anywhere in the schedule: if every membership began at its head, the heaviest would get all picks under churn.
                let start = if last.is_some() { fastrand::usize(..turns.len().max(1)) } else { 0 };
                Arc::new(Schedule { turns, next: AtomicUsize::new(start) })
            }
        };
        *last = Some(Last { members: members.to_vec(), weights, schedule: schedule.clone() });
        Box::new(schedule)
    }

    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        Some(Box::new(Self::new()))
    }
}

fn same_ids(before: &[Member], now: &[Member]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(a, b)| a.instance().id() == b.instance().id())
}

/// Divides by the greatest common divisor, and scales down what is still too long.
fn reduced(weights: &[u32]) -> Vec<u64> {
    let divisor = weights.iter().fold(0, |a, b| gcd(a, u64::from(*b))).max(1);
    let weights: Vec<_> = weights.iter().map(|w| u64::from(*w) / divisor).collect();
    let sum: u64 = weights.iter().sum();
    let limit = MAX_SCHEDULE.max(weights.len() as u64);
    if sum <= limit {
        return weights;
    }
    let scaled = |w: u64| {
        let rounded = (u128::from(w) * u128::from(limit) + u128::from(sum) / 2) / u128::from(sum);
        u64::try_from(rounded).unwrap_or(limit)
    };
    // Whoever has weight keeps a share, however small.
    weights.iter().map(|w| if *w == 0 { 0 } else { scaled(*w).max(1) }).collect()
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Orders members by deadline; a smaller fraction comes first.
#[derive(PartialEq, Eq)]
struct Released {
    numerator: u128,
    denominator: u128,
    member: u32,
}

impl Ord for Released {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let (a, b) = (self.numerator * other.denominator, other.numerator * self.denominator);
        a.cmp(&b).then(self.member.cmp(&other.member))
    }
}

impl PartialOrd for Released {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn schedule(weights: &[u64]) -> Vec<u32> {
    let sum: u64 = weights.iter().sum();
    let active: Vec<_> = weights.iter().zip(0u32..).filter(|(w, _)| **w > 0).map(|(w, i)| (*w, i)).collect();
    if active.len() < 2 {
        return active.first().map_or(Vec::new(), |(_, member)| vec![*member]);
    }
    // 1/λ, so that everything stays a whole number.
    let steps = 2 * active.len() as u128 - 2;
    let wide = u128::from(sum);
    // λ ≤ 1/2, so every first release falls into the schedule, and all products stay below 2^128: sum, steps and k are below 2^34.
    let release = |w: u64, k: u64| (wide * (u128::from(k) * steps + 1)).div_ceil(u128::from(w) * steps);
    let deadline = |w: u64, k: u64, member| Released {
        numerator: wide * ((u128::from(k) + 1) * steps - 1),
        denominator: u128::from(w) * steps,
        member,
    };
    let mut counts = vec![0u64; weights.len()];
    let mut waiting: BinaryHeap<_> = active.iter().map(|(w, m)| Reverse((release(*w, 0), *m))).collect();
    let mut released = BinaryHeap::new();
    let mut turns = Vec::with_capacity(usize::try_from(sum).unwrap_or(0));
    for t in 1..=wide {
        while let Some(Reverse((at, member))) = waiting.peek().copied() {
            if at > t {
                break;
            }
            waiting.pop();
            released.push(Reverse(deadline(weights[member as usize], counts[member as usize], member)));
        }
        // Tijdeman's theorem: some member is always released.
        let Some(Reverse(Released { member, .. })) = released.pop() else {
            continue;
        };
        turns.push(member);
        counts[member as usize] += 1;
        waiting.push(Reverse((release(weights[member as usize], counts[member as usize]), member)));
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::members;
    use proptest::prelude::*;

    /// The largest distance from the ideal over all prefixes of a schedule.
    fn deviation(weights: &[u32], picks: usize) -> f64 {
        let members = members(weights);
        let picker = WeightedRoundRobin::new().build(&members);
        let sum: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        let mut counts = vec![0f64; weights.len()];
        let mut worst = 0f64;
        for t in 1..=picks {
            counts[picker.pick(&members, &Context::default()).unwrap()] += 1.0;
            for (count, weight) in counts.iter().zip(weights) {
                worst = worst.max((count - t as f64 * f64::from(*weight) / sum).abs());
            }
        }
        worst
    }

    #[test]
    fn p05_weights_one_to_a_hundred_stay_below_one_pick() {
        let weights: Vec<_> = (1..=100).collect();
        let worst = deviation(&weights, 10_100);
        assert!(worst < 1.0, "{worst}");
    }

    #[test]
    fn p05_a_change_that_is_not_of_weights_begins_nothing_anew() {
        let factory = WeightedRoundRobin::new();
        let mut counts = [0; 4];
        for round in 0..1_000 {
            // Other records, the same ids and weights.
            let members = members(&[1; 4]);
            let picked = factory.build(&members).pick(&members, &Context::default()).unwrap();
            counts[picked] += 1;
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?} in round {round}");
        }
    }

    #[test]
    fn f13_extreme_weights() {
        assert!(deviation(&[u32::MAX; 3], 10_000) < 1.0);
        assert!(deviation(&[u32::MAX, 1, 7], 10_000) <= 1.5);
        assert_eq!(
            WeightedRoundRobin::new().build(&members(&[0, 0])).pick(&members(&[0, 0]), &Context::default()),
            None
        );
        let one = members(&[0, 5, 0]);
        let picker = WeightedRoundRobin::new().build(&one);
        assert!((0..10_000).all(|_| picker.pick(&one, &Context::default()) == Some(1)));
    }

    #[test]
    fn f12_the_counter_never_cuts_a_schedule_short() {
        let members = members(&[1, 2, 4]);
        let schedule = Arc::new(Schedule { turns: schedule(&[1, 2, 4]).into(), next: AtomicUsize::new(0) });
        schedule.next.store(schedule.limit() - 7, Ordering::Relaxed);
        let mut counts = [0; 3];
        for _ in 0..21 {
            counts[schedule.pick(&members, &Context::default()).unwrap()] += 1;
        }
        assert_eq!(counts, [3, 6, 12]);
        assert!(schedule.next.load(Ordering::Relaxed) < 100);
    }

    proptest! {
        #[test]
        fn p05_no_prefix_is_a_whole_pick_from_the_ideal(weights in proptest::collection::vec(1u32..60, 1..20)) {
            let sum: u32 = weights.iter().sum();
            prop_assert!(deviation(&weights, 2 * sum as usize) < 1.0);
        }

        #[test]
        fn any_weights_have_a_bounded_schedule(weights in proptest::collection::vec(any::<u32>(), 0..40)) {
            let turns = schedule(&reduced(&weights));
            prop_assert!(turns.len() as u64 <= MAX_SCHEDULE + weights.len() as u64);
            for (weight, member) in weights.iter().zip(0u32..) {
                prop_assert_eq!(*weight > 0, turns.contains(&member));
            }
        }
    }
}
