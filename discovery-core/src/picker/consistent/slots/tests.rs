//! The slots against what each slot says for itself.

use std::collections::BTreeMap;

use super::*;
use crate::picker::consistent::seat::mix;
use proptest::prelude::*;

const BITS: u32 = 7;

fn owners(slots: &Slots) -> Vec<Option<u64>> {
    let by_seat: BTreeMap<_, _> = slots.roster.iter().map(|(key, seat)| (*seat, *key)).collect();
    slots.owners.iter().map(|owner| by_seat.get(owner).copied()).collect()
}

/// Who claims each slot first, asked from all.
fn first(members: &[(u64, u32)]) -> Vec<Option<u64>> {
    let seats: Vec<_> = members.iter().map(|(key, weight)| Seat::new(*key, *weight, BITS)).collect();
    let first = |slot| seats.iter().reduce(|a, b| if a.beats(b, slot) { a } else { b });
    (0..if seats.is_empty() { 0 } else { 1 << BITS }).map(|slot| first(slot).map(|seat| seat.key)).collect()
}

fn update(slots: &mut Slots, members: &BTreeMap<u64, u32>) -> Vec<(u64, u32)> {
    let now: Vec<_> = members.iter().map(|(key, weight)| (*key, *weight)).collect();
    slots.update(&now);
    now
}

proptest! {
    /// Whatever came and went before, each slot belongs to whoever claims it first.
    #[test]
    fn p06_the_slots_depend_on_the_members_alone(
        steps in proptest::collection::vec((0u64..60, 0u32..4, prop_oneof![1u32..4, Just(u32::MAX)]), 1..40),
        crowd in 0u64..40,
    ) {
        let mut slots = Slots::new(BITS);
        let mut members: BTreeMap<u64, u32> = (100..100 + crowd).map(|key| (mix(key), 3)).collect();
        for (key, act, weight) in steps {
            match act {
                0 => members.remove(&mix(key)),
                _ => members.insert(mix(key), weight),
            };
            let now = update(&mut slots, &members);
            prop_assert_eq!(owners(&slots), first(&now));
            let mut late = slots.late.clone();
            late.sort_unstable();
            late.dedup();
            prop_assert_eq!(late.len(), slots.late.len());
        }
    }
}

#[test]
fn p06_churn_around_one_size_is_right_step_by_step() {
    for (size, weights) in [(40, 5), (20, 1), (150, 1)] {
        let mut slots = Slots::new(BITS);
        let mut members: BTreeMap<u64, u32> = (0..size).map(|key| (mix(key), 1 + key as u32 % weights)).collect();
        for step in 0..300 {
            if step % 2 == 0 {
                members.pop_first();
            } else {
                members.insert(mix(1_000 + step), 1 + step as u32 % weights);
            }
            let now = update(&mut slots, &members);
            assert_eq!(owners(&slots), first(&now), "step {step} of {size}");
            assert!(slots.seats() as u64 <= size + 1);
        }
    }
}
