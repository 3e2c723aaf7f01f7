//! A deterministic subset: each client speaks only to some of the members.
//!
//! Source: rendezvous hashing (D. Thaler and C. Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM ToN 1998) by the
//! client's id, as gRPC's proposal A68 ("Random subsetting with rendezvous hashing") has it: the members with the k lowest hashes.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Context, Member, Picker, PickerFactory};

/// Narrows the members to k of them before an inner factory's picker picks, so that many clients need not all hold connections to all.
///
/// Which k depends on the client's id and the members' ids alone, not on their order nor on who was there before. When one member leaves
/// or joins, at most one of the k changes. Weights do not decide who is chosen, only the inner picker heeds them: a member with twice
/// the weight then gets twice the requests of those who have it.
///
/// With [zones](crate::Zone) or [priorities](crate::Priorities) it narrows each group of members for itself: while the caller's zone is short of
/// instances, k of the others are added.
///
/// Each member is in as many subsets as chance has it: with c clients and n members it has about `c * k / n` clients, give or take the root of
/// that.
#[derive(Debug)]
pub struct Subset<F> {
    inner: F,
    size: usize,
    seed: u64,
}

impl<F: PickerFactory> Subset<F> {
    /// Chooses `size` members, at least one, for this client. Ids that differ between the clients and stay the same over a restart are
    /// best, such as a host's or pod's name.
    pub fn new(inner: F, size: usize, client: &str) -> Self {
        Self { inner, size: size.max(1), seed: xxh3_64(client.as_bytes()) }
    }

    /// The indexes of the chosen, in order.
    fn chosen(&self, members: &[Member]) -> Vec<usize> {
        let score = |member: &Member| xxh3_64_with_seed(member.instance().id().as_bytes(), self.seed);
        let mut scored: Vec<_> = members.iter().enumerate().map(|(index, member)| (score(member), index)).collect();
        if self.size < scored.len() {
            // Of two with the same hash the lower id, whatever their order.
            let id = |index: usize| members[index].instance().id();
            scored.select_nth_unstable_by(self.size, |a, b| a.0.cmp(&b.0).then_with(|| id(a.1).cmp(id(b.1))));
            scored.truncate(self.size);
        }
        let mut chosen: Vec<_> = scored.into_iter().map(|(_, index)| index).collect();
        chosen.sort_unstable();
        chosen
    }
}

impl<F: PickerFactory> PickerFactory for Subset<F> {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        let indexes = self.chosen(members);
        let chosen: Box<[Member]> = indexes.iter().map(|index| members[*index].clone()).collect();
        Box::new(Narrowed { inner: self.inner.build(&chosen), indexes: indexes.into(), chosen })
    }

    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        let inner = self.inner.another()?;
        Some(Box::new(Subset { inner, size: self.size, seed: self.seed }))
    }
}

struct Narrowed {
    inner: Box<dyn Picker>,
    /// What the inner picker sees.
    chosen: Box<[Member]>,
    /// Their indexes among all.
    indexes: Box<[usize]>,
}

impl Picker for Narrowed {
    #[inline]
    fn pick(&self, _members: &[Member], context: &Context<'_>) -> Option<usize> {
        let picked = self.inner.pick(&self.chosen, context)?;
        self.indexes.get(picked).copied()
    }

    fn may_pick(&self, index: usize) -> bool {
        self.indexes.binary_search(&index).is_ok_and(|chosen| self.inner.may_pick(chosen))
    }

    fn is_timed(&self) -> bool {
        self.inner.is_timed()
    }

    fn starts_by_weight(&self) -> bool {
        self.inner.starts_by_weight()
    }

    fn pick_where(&self, _members: &[Member], context: &Context<'_>, accepts: &dyn Fn(usize) -> bool) -> Option<usize> {
        let accepts = |at: usize| self.indexes.get(at).is_some_and(|at| accepts(*at));
        let picked = self.inner.pick_where(&self.chosen, context, &accepts)?;
        self.indexes.get(picked).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::balancer::testing::{member, members};
    use crate::picker::{RoundRobin, WeightedRoundRobin};
    use proptest::prelude::*;

    fn ids(members: &[Member], size: usize, client: &str) -> BTreeSet<String> {
        let subset = Subset::new(RoundRobin::new(), size, client);
        let picker = subset.build(members);
        let pick = |_| picker.pick(members, &Context::default()).map(|at| members[at].instance().id().to_owned());
        (0..members.len() * 2).filter_map(pick).collect()
    }

    #[test]
    fn f12_nobody_where_there_is_nobody() {
        for size in [0, 1, 3, usize::MAX] {
            assert!(ids(&[], size, "c").is_empty());
            assert_eq!(ids(&members(&[1]), size, "c").len(), 1);
            assert_eq!(ids(&members(&[1; 3]), size, "c").len(), size.clamp(1, 3));
        }
    }

    #[test]
    fn f13_the_inner_picker_heeds_the_weights() {
        let members = members(&[u32::MAX, 0, u32::MAX]);
        let picker = Subset::new(WeightedRoundRobin::new(), 3, "c").build(&members);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[picker.pick(&members, &Context::default()).unwrap()] += 1;
        }
        assert_eq!(counts, [5_000, 0, 5_000]);
    }

    #[test]
    fn clients_spread_over_the_members() {
        let members = members(&[1; 50]);
        let mut counts = [0u32; 50];
        for client in 0..2_000 {
            let subset = Subset::new(RoundRobin::new(), 10, &format!("client-{client}"));
            subset.chosen(&members).into_iter().for_each(|index| counts[index] += 1);
        }
        // Each of 400 expected has the variance 2,000 * 0.2 * 0.8. Chi-square with 49 degrees of freedom: 113 is exceeded once in a million.
        let chi: f64 = counts.iter().map(|c| (f64::from(*c) - 400.0).powi(2) / 320.0).sum::<f64>() * 49.0 / 50.0;
        assert!(chi < 113.0, "{chi}");
    }

    proptest! {
        #[test]
        fn one_change_of_the_set_changes_one_of_the_subset(
            all in proptest::collection::btree_set("[a-z]{1,8}", 2..40),
            size in 1usize..12,
            leaver in any::<prop::sample::Index>(),
        ) {
            let leaver = leaver.get(&all.iter().collect::<Vec<_>>()).to_string();
            let of = |ids: &mut dyn Iterator<Item = &String>| ids.map(|id| member(id, 1)).collect::<Vec<_>>();
            let before = ids(&of(&mut all.iter()), size, "client");
            let after = ids(&of(&mut all.iter().filter(|id| **id != leaver)), size, "client");
            prop_assert!(before.difference(&after).all(|id| *id == leaver));
            prop_assert!(after.difference(&before).count() <= usize::from(before.contains(&leaver)));
            prop_assert_eq!(ids(&of(&mut all.iter().rev()), size, "client"), before);
        }
    }
}
