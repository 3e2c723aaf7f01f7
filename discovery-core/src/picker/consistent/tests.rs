//! What consistent hashing promises, over the picker as the balancer uses it.

use super::*;
use crate::balancer::testing::{member, members};
use proptest::prelude::*;

const SLOTS: usize = 1 << 12;

fn pick<'a>(picker: &dyn Picker, members: &'a [Member], key: u32) -> Option<&'a str> {
    let at = picker.pick(members, &Context::default().with_key(&key.to_le_bytes()))?;
    Some(members[at].instance().id())
}

#[test]
fn f12_nobody_where_there_is_nobody_and_all_members_otherwise() {
    let factory = ConsistentHash::with_slots(SLOTS);
    for n in [5, 0, 1, 5] {
        let members = members(&vec![1; n]);
        let picker = factory.build(&members);
        let seen: std::collections::BTreeSet<_> = (0..1_000).filter_map(|key| pick(&*picker, &members, key)).collect();
        assert_eq!(seen.len(), n);
        assert_eq!(picker.pick(&members, &Context::default()).is_some(), n > 0);
    }
}

#[test]
fn f13_weights_of_every_kind() {
    for (weights, shares) in [
        (vec![0, 0, 0], vec![0.0, 0.0, 0.0]),
        (vec![0, 5, 0], vec![0.0, 1.0, 0.0]),
        (vec![u32::MAX; 3], vec![1.0 / 3.0; 3]),
        (vec![u32::MAX, 1], vec![1.0, 0.0]),
        (vec![1, 3], vec![0.25, 0.75]),
        (vec![100, 200, 300, 400], vec![0.1, 0.2, 0.3, 0.4]),
    ] {
        let members = members(&weights);
        let picker = ConsistentHash::with_slots(1 << 16).build(&members);
        let mut counts = vec![0.0; weights.len()];
        for _ in 0..10_000 {
            // Without a key: at random, by weight.
            if let Some(at) = picker.pick(&members, &Context::default()) {
                counts[at] += 1.0;
            }
        }
        for (count, share) in counts.iter().zip(&shares) {
            assert!((count - share * 10_000.0f64).abs() <= share * (1.0 - share) * 1_200.0, "{weights:?}: {counts:?}");
        }
    }
}

/// The figures that the documentation promises, from all slots.
#[test]
fn a_thousand_members_have_even_shares() {
    let members = members(&[1; 1_000]);
    let table = ConsistentHash::new().table(&members);
    let mut counts = vec![0u32; 1_000];
    for owner in table.owners.iter() {
        counts[table.indexes[usize::from(*owner)] as usize] += 1;
    }
    let mean = table.owners.len() as f64 / 1_000.0;
    let most = f64::from(counts.iter().copied().max().unwrap()) / mean;
    let variance = counts.iter().map(|c| (f64::from(*c) - mean).powi(2)).sum::<f64>() / 1_000.0;
    assert!(most <= 1.10, "{most}");
    // Half of what independent draws would have.
    assert!((0.4..0.6).contains(&(variance / mean)), "{}", variance / mean);
}

/// The mapping is a promise between releases: these were computed by the first one.
#[test]
fn p06_the_mapping_never_changes() {
    let members: Vec<_> = (0..10).map(|n| member(&format!("10.0.0.{n}:80"), 1 + n % 3)).collect();
    let picker = ConsistentHash::with_slots(SLOTS).build(&members);
    let picked: Vec<_> =
        (0..16).map(|key| picker.pick(&members, &Context::default().with_key(&[key])).unwrap()).collect();
    assert_eq!(picked, [8, 5, 9, 9, 1, 9, 9, 7, 3, 4, 1, 8, 3, 4, 2, 8]);
}

proptest! {
    /// Another process, with the members in any order and another past, sends every key to the same member; and one change moves only the
    /// keys of whom it is about.
    #[test]
    fn p06_same_everywhere_and_only_what_must_move_moves(
        ids in proptest::collection::btree_map("[a-z]{1,8}", prop_oneof![1u32..5, Just(u32::MAX)], 2..30),
        changed in any::<prop::sample::Index>(),
    ) {
        let all: Vec<_> = ids.iter().map(|(id, weight)| member(id, *weight)).collect();
        let changed = changed.index(all.len());
        let mut rest = all.clone();
        let leaver = rest.remove(changed);
        let turned: Vec<_> = all.iter().rev().cloned().collect();
        let one = ConsistentHash::with_slots(SLOTS);
        let (whole, without, again) = (one.build(&all), one.build(&rest), one.build(&all));
        let other = ConsistentHash::with_slots(SLOTS);
        let (other_without, other_whole) = (other.build(&rest), other.build(&turned));
        for key in 0..500 {
            let owner = pick(&*whole, &all, key);
            prop_assert_eq!(pick(&*again, &all, key), owner, "a restart moves nothing");
            prop_assert_eq!(pick(&*other_whole, &turned, key), owner);
            let second = pick(&*without, &rest, key);
            prop_assert_eq!(pick(&*other_without, &rest, key), second);
            if owner != Some(leaver.instance().id()) {
                prop_assert_eq!(second, owner);
            }
        }
    }

    #[test]
    fn p06_more_weight_moves_keys_only_to_its_member(weights in proptest::collection::vec(1u32..100, 2..20), more in 1u32..100) {
        let before = members(&weights);
        let mut heavier = weights.clone();
        heavier[0] += more;
        let after = members(&heavier);
        let factory = ConsistentHash::with_slots(SLOTS);
        let (old, new) = (factory.build(&before), factory.build(&after));
        for key in 0..500 {
            let (from, to) = (pick(&*old, &before, key), pick(&*new, &after, key));
            prop_assert!(from == to || to == Some("00000"));
        }
    }
}
