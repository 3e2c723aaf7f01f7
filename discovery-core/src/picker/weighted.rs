//! Smooth weighted round robin: the turns of a [schedule](super::schedule), from a table or as they come.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::schedule::Schedule;
use super::stream::Stream;
use super::{Context, Member, Picker, PickerFactory};

/// The longest table. It bounds a rebuild to about ten milliseconds and the table to 256 KiB.
const MAX_TABLE: u64 = 1 << 16;
/// How far into a schedule a new membership may begin.
const MAX_SKIP: usize = 1 << 12;

/// Takes the members in proportion to their weights, spread as evenly as possible: from its first pick on, no prefix is a whole pick from the
/// ideal (P5).
///
/// When members or weights change it begins anew at a random place of its order, from where on any stretch of picks is less than two from the
/// ideal: if every membership began at the head, the heaviest would get all picks while members come and go.
///
/// Any weights up to `u32::MAX` work without expanding them. If their sum divided by their greatest common divisor is at most 65,536, a
/// pick is one addition and one look into a table; beyond that, every 32nd pick also makes the next turns, which takes some microseconds.
#[derive(Debug, Default)]
pub struct WeightedRoundRobin {
    /// What was built last; written by `build` alone.
    last: Mutex<Option<Last>>,
}

#[derive(Debug)]
struct Last {
    members: Vec<Member>,
    weights: Vec<u64>,
    turns: Arc<Turns>,
}

#[derive(Debug)]
enum Turns {
    Nobody,
    Table(Table),
    Stream(Stream),
}

impl WeightedRoundRobin {
    /// Makes a factory.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Picker for Arc<Turns> {
    fn pick(&self, members: &[Member], context: &Context<'_>) -> Option<usize> {
        match &**self {
            Turns::Table(table) => table.pick(),
            Turns::Stream(stream) => stream.pick(members, context),
            Turns::Nobody => None,
        }
    }
}

#[derive(Debug)]
struct Table {
    turns: Box<[u32]>,
    /// Counts picks; nothing is published with it, so relaxed ordering suffices.
    next: AtomicUsize,
}

impl Table {
    #[inline]
    fn pick(&self) -> Option<usize> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = ticket.checked_rem(self.turns.len())?;
        // On the way to the maximum the counter is set back by whole schedules, so that its wrap never cuts one short.
        if ticket == self.limit() {
            self.next.fetch_sub(self.limit(), Ordering::Relaxed);
        }
        Some(self.turns[turn] as usize)
    }

    fn limit(&self) -> usize {
        (usize::MAX / 2) - (usize::MAX / 2) % self.turns.len()
    }
}

impl Turns {
    /// Begins `skip` picks into the schedule.
    fn new(weights: &[u64], skip: usize) -> Self {
        let schedule = Schedule::new(weights);
        let round = schedule.round();
        if round > MAX_TABLE {
            return Stream::new(schedule, skip).map_or(Self::Nobody, Self::Stream);
        }
        let turns: Box<[u32]> = schedule.take(usize::try_from(round).unwrap_or(0)).collect();
        match turns.len() {
            0 => Self::Nobody,
            length => Self::Table(Table { turns, next: AtomicUsize::new(skip % length) }),
        }
    }
}

impl PickerFactory for WeightedRoundRobin {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        let weights = reduced(members);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // The same members with the same shares go on where they are: a change of metadata is no reason to begin anew.
        let known = last.as_ref().filter(|last| last.weights == weights && same_ids(&last.members, members));
        let turns = match known {
            Some(last) => last.turns.clone(),
            // Anywhere in the schedule: if every membership began at its head, the heaviest would get all picks under churn.
            None => Arc::new(Turns::new(&weights, if last.is_some() { fastrand::usize(..MAX_SKIP) } else { 0 })),
        };
        *last = Some(Last { members: members.to_vec(), weights, turns: turns.clone() });
        Box::new(turns)
    }

    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        Some(Box::new(Self::new()))
    }
}

fn same_ids(before: &[Member], now: &[Member]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(a, b)| a.instance().id() == b.instance().id())
}

/// The weights divided by their greatest common divisor.
fn reduced(members: &[Member]) -> Vec<u64> {
    let divisor = members.iter().fold(0, |a, member| gcd(a, u64::from(member.weight()))).max(1);
    members.iter().map(|member| u64::from(member.weight()) / divisor).collect()
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
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
        assert!(deviation(&[u32::MAX, 1, 7], 200_000) < 1.0);
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
        let table = Table { turns: Schedule::new(&[1, 2, 4]).take(7).collect(), next: AtomicUsize::new(0) };
        table.next.store(table.limit() - 7, Ordering::Relaxed);
        let mut counts = [0; 3];
        for _ in 0..21 {
            counts[table.pick().unwrap()] += 1;
        }
        assert_eq!(counts, [3, 6, 12]);
        assert!(table.next.load(Ordering::Relaxed) < 100);
    }

    proptest! {
        #[test]
        fn p05_no_prefix_is_a_whole_pick_from_the_ideal(weights in proptest::collection::vec(1u32..60, 1..20)) {
            let sum: u32 = weights.iter().sum();
            prop_assert!(deviation(&weights, 2 * sum as usize) < 1.0);
        }
    }
}
