//! Round robin, exact also while members come and go.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Context, Member, Picker, PickerFactory};

/// Takes the members in turn, whatever their weight (P5).
///
/// A change of the membership does not begin a new round: the next member in the order of ids goes on, so that nobody is
/// picked twice before everybody was picked once.
#[derive(Debug, Default)]
pub struct RoundRobin {
    tickets: Arc<Tickets>,
    /// The picker built last; written by `build` alone.
    last: Mutex<Option<Turn>>,
}

/// Numbers the picks of all pickers that one factory built. Only the number matters, nothing is published with it, so relaxed ordering
/// suffices. It may wrap: pickers use its distance from their first number. It has its cache lines to itself (two, as processors fetch
/// them in pairs): everybody writes it, so whatever stood beside it would have to be fetched again by everybody.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Tickets(AtomicUsize);

/// Where a picker's round stands: ticket `base` takes the member at `start`.
#[derive(Debug)]
struct Turn {
    members: Vec<Member>,
    base: usize,
    start: usize,
}

#[derive(Debug)]
struct Wheel {
    tickets: Arc<Tickets>,
    base: usize,
    start: usize,
}

impl RoundRobin {
    /// Makes a factory whose first pick is the first member.
    pub fn new() -> Self {
        Self::default()
    }

    #[cfg(test)]
    fn starting_at(ticket: usize) -> Self {
        Self { tickets: Arc::new(Tickets(AtomicUsize::new(ticket))), last: Mutex::new(None) }
    }
}

impl Picker for Wheel {
    fn pick(&self, members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let distance = self.tickets.0.fetch_add(1, Ordering::Relaxed).wrapping_sub(self.base);
        // Both are below the number of members; a second remainder would take as long as the pick's additions.
        let turn = distance.checked_rem(members.len())? + self.start;
        Some(turn.checked_sub(members.len()).unwrap_or(turn))
    }

    fn shares_by_weight(&self) -> bool {
        false
    }
}

impl PickerFactory for RoundRobin {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let base = self.tickets.0.load(Ordering::Relaxed);
        let next = last.as_ref().and_then(|turn| {
            let ahead = base.wrapping_sub(turn.base).checked_rem(turn.members.len())?;
            turn.members.get((ahead + turn.start) % turn.members.len())
        });
        let start = match next {
            Some(next) => {
                let id = next.instance().id();
                members.partition_point(|member| member.instance().id() < id) % members.len().max(1)
            }
            None => 0,
        };
        *last = Some(Turn { members: members.to_vec(), base, start });
        Box::new(Wheel { tickets: self.tickets.clone(), base, start })
    }

    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        Some(Box::new(Self::new()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::balancer::testing::{member, members};
    use proptest::prelude::*;

    #[test]
    fn f12_counts_stay_exact_across_the_wrap() {
        for near in [i32::MAX as usize, u32::MAX as usize, usize::MAX] {
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
        /// From the moment on when two members stand side by side, they are never more than one pick apart.
        #[test]
        fn p05_counts_differ_by_at_most_one_across_updates(
            steps in proptest::collection::vec((proptest::collection::btree_set(0u8..12, 0..9), 0usize..25), 1..12),
        ) {
            let factory = RoundRobin::new();
            // For each pair, how far the first is ahead of the second since both are there.
            let mut ahead: BTreeMap<(u8, u8), i32> = BTreeMap::new();
            for (present, picks) in steps {
                let members: Vec<_> = present.iter().map(|id| member(&format!("{id:02}"), 1)).collect();
                ahead.retain(|(a, b), _| present.contains(a) && present.contains(b));
                for pair in present.iter().flat_map(|a| present.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b) {
                    ahead.entry(pair).or_insert(0);
                }
                let picker = factory.build(&members);
                for _ in 0..picks {
                    let picked = picker.pick(&members, &Context::default()).and_then(|at| present.iter().nth(at));
                    prop_assert_eq!(picked.is_none(), present.is_empty());
                    for ((a, b), lead) in &mut ahead {
                        *lead += i32::from(Some(a) == picked) - i32::from(Some(b) == picked);
                        prop_assert!(lead.abs() <= 1, "{} and {} are {} apart", a, b, lead);
                    }
                }
            }
        }
    }
}
