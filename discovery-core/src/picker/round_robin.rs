//! Round robin, exact also while members come and go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Context, Member, Picker, PickerFactory};
use crate::Instance;

/// Takes the members in turn, whatever their weight (P5).
///
/// A change of the membership does not begin a new round: the next member in the order of ids goes on, so that nobody is
/// picked twice before everybody was picked once.
#[derive(Debug, Default)]
pub struct RoundRobin {
    tickets: Arc<Tickets>,
    /// The picker built last; written by `build` alone.
    last: Mutex<Option<Wheel>>,
}

/// Numbers the picks of all pickers that one factory built. Only the number matters, nothing is published with it, so relaxed ordering
/// suffices. It may wrap: pickers use its distance from their first number. It has its cache lines to itself (two, as processors fetch
/// them in pairs): everybody writes it, so whatever stood beside it would have to be fetched again by everybody.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Tickets(AtomicU64);

/// Nobody was picked yet.
const UNSET: u64 = u64::MAX;
/// So many rounds before its first pick a turn is anchored, for picks that drew their ticket earlier and come later.
const ROUNDS_BEFORE: u64 = 1 << 20;

/// Whose turn it is under one membership.
#[derive(Debug)]
struct Turn {
    /// Whose ids are the order.
    instances: Box<[Arc<Instance>]>,
    /// A ticket that takes the first member. It is set by the first pick, and never again: until then, the former turn goes on, however many
    /// tickets are drawn between `build` and that pick. It publishes nothing but itself, so relaxed ordering suffices.
    anchor: AtomicU64,
}

impl Turn {
    fn is_set(&self) -> bool {
        self.anchor.load(Ordering::Relaxed) != UNSET
    }

    /// Who has this ticket; `None` before the first pick.
    fn id_at(&self, ticket: u64) -> Option<&str> {
        let anchor = Some(self.anchor.load(Ordering::Relaxed)).filter(|anchor| *anchor != UNSET)?;
        let at = ticket.wrapping_sub(anchor).checked_rem(self.instances.len() as u64)?;
        Some(self.instances.get(usize::try_from(at).ok()?)?.id())
    }
}

#[derive(Debug, Clone)]
struct Wheel {
    tickets: Arc<Tickets>,
    turn: Arc<Turn>,
    /// The turn before, and, if nobody was picked from that when this was built, the last one from which somebody was.
    formers: [Option<Arc<Turn>>; 2],
}

impl RoundRobin {
    /// Makes a factory whose first pick is the first member.
    pub fn new() -> Self {
        Self::default()
    }

    #[cfg(test)]
    fn starting_at(ticket: u64) -> Self {
        Self { tickets: Arc::new(Tickets(AtomicU64::new(ticket))), last: Mutex::new(None) }
    }
}

impl Wheel {
    /// Anchors the turn: this ticket takes whoever would have had it in the former turn, or who comes next by id.
    ///
    /// Two at the same time anchor it at their own tickets, either of which is right; that of the first counts for both.
    #[cold]
    fn begin(&self, ticket: u64, members: &[Member]) -> u64 {
        let next = self.formers.iter().flatten().find_map(|turn| turn.id_at(ticket));
        let start = next.map_or(0, |id| members.partition_point(|member| member.instance().id() < id));
        let n = members.len() as u64;
        let anchor = ticket.wrapping_sub(start as u64 % n.max(1)).wrapping_sub(n.wrapping_mul(ROUNDS_BEFORE));
        let anchor = if anchor == UNSET { anchor.wrapping_sub(n) } else { anchor };
        let set = self.turn.anchor.compare_exchange(UNSET, anchor, Ordering::Relaxed, Ordering::Relaxed);
        set.map_or_else(|theirs| theirs, |_| anchor)
    }
}

impl Picker for Wheel {
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let ticket = self.tickets.0.fetch_add(1, Ordering::Relaxed);
        let anchor = match self.turn.anchor.load(Ordering::Relaxed) {
            UNSET if !members.is_empty() => self.begin(ticket, members),
            anchor => anchor,
        };
        usize::try_from(ticket.wrapping_sub(anchor).checked_rem(members.len() as u64)?).ok()
    }

    fn starts_by_weight(&self) -> bool {
        false
    }
}

impl PickerFactory for RoundRobin {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let formers = match &*last {
            None => [None, None],
            Some(last) if last.turn.is_set() => [Some(last.turn.clone()), None],
            // Somebody may still be picked from it before the new one is in place, so both count.
            Some(last) => {
                let mut before = last.formers.iter().flatten();
                [Some(last.turn.clone()), before.clone().find(|turn| turn.is_set()).or(before.next()).cloned()]
            }
        };
        let instances = members.iter().map(|member| member.instance().clone()).collect();
        let turn = Arc::new(Turn { instances, anchor: AtomicU64::new(UNSET) });
        let wheel = Wheel { tickets: self.tickets.clone(), turn, formers };
        *last = Some(wheel.clone());
        Box::new(wheel)
    }

    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        Some(Box::new(Self::new()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::balancer::testing::{member, members};
    use proptest::prelude::*;

    #[test]
    fn f12_counts_stay_exact_across_the_wrap() {
        for near in [i32::MAX as u64, u32::MAX as u64, u64::MAX] {
            for n in [3, 5, 7] {
                let members = members(&vec![1; n]);
                let picker = RoundRobin::starting_at(near - 5).build(&members);
                let mut counts = vec![0; n];
                for _ in 0..20 {
                    counts[picker.pick(&members, &Context::default()).unwrap()] += 1;
                    assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
                }
                assert_eq!(picker.pick(&[], &Context::default()), None);
            }
        }
    }

    proptest! {
        /// From the moment on when two members stand side by side, they are never more than one pick apart, also if a new turn is in place only
        /// some picks after it was built, or nobody is picked from it before the next.
        #[test]
        fn p05_counts_differ_by_at_most_one_across_updates(
            steps in proptest::collection::vec(
                (proptest::collection::btree_set(0u8..12, 0..9), 0usize..25, 0usize..9),
                1..14,
            ),
            first in prop_oneof![Just(0), Just(u64::MAX - 40), any::<u64>()],
        ) {
            let factory = RoundRobin::starting_at(first);
            // For each pair, how far the first is ahead of the second since both are there.
            let mut ahead: BTreeMap<(u8, u8), i32> = BTreeMap::new();
            let mut now = (BTreeSet::new(), Vec::new(), factory.build(&[]));
            let pick = |(present, members, picker): &(BTreeSet<u8>, Vec<Member>, Box<dyn Picker>),
                            ahead: &mut BTreeMap<(u8, u8), i32>| {
                let picked = picker.pick(members, &Context::default()).and_then(|at| present.iter().nth(at));
                prop_assert_eq!(picked.is_none(), present.is_empty());
                for ((a, b), lead) in ahead {
                    *lead += i32::from(Some(a) == picked) - i32::from(Some(b) == picked);
                    prop_assert!(lead.abs() <= 1, "{} and {} are {} apart", a, b, lead);
                }
                Ok(())
            };
            for (present, picks, late) in steps {
                let members: Vec<_> = present.iter().map(|id| member(&format!("{id:02}"), 1)).collect();
                let picker = factory.build(&members);
                for _ in 0..late {
                    pick(&now, &mut ahead)?;
                }
                ahead.retain(|(a, b), _| present.contains(a) && present.contains(b));
                for pair in present.iter().flat_map(|a| present.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b) {
                    ahead.entry(pair).or_insert(0);
                }
                now = (present, members, picker);
                for _ in 0..picks {
                    pick(&now, &mut ahead)?;
                }
            }
        }
    }

    /// What a new turn goes on from is bounded, however many are built that nobody is picked from.
    #[test]
    fn p05_turns_that_nobody_had_are_let_go() {
        let (factory, all) = (RoundRobin::new(), members(&[1; 5]));
        let picker = factory.build(&all);
        (0..3).for_each(|at| assert_eq!(picker.pick(&all, &Context::default()), Some(at)));
        for _ in 0..100 {
            factory.build(&all[..2]);
        }
        let last = factory.last.lock().unwrap().clone().unwrap();
        assert_eq!(last.formers.iter().flatten().filter(|turn| turn.is_set()).count(), 1);
        assert_eq!(factory.build(&all).pick(&all, &Context::default()), Some(3));
    }

    #[test]
    fn p05_threads_begin_a_turn_together() {
        let (factory, before) = (RoundRobin::new(), members(&[1; 7]));
        for round in 0..200 {
            let members = &before[..5 + round % 3];
            let picker = factory.build(members);
            let picks = || (0..35 * 6).map(|_| picker.pick(members, &Context::default()).unwrap()).collect::<Vec<_>>();
            let all: Vec<_> = std::thread::scope(|scope| {
                let threads = [scope.spawn(picks), scope.spawn(picks)];
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            let count = |at: usize| all.iter().filter(|picked| **picked == at).count();
            assert!((0..members.len()).all(|at| count(at) == 420 / members.len()));
        }
    }
}
