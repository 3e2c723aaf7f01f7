//! Sticky: what was picked for a key is picked again.
//!
//! Source: the common session affinity of load balancers, kept in a table of fixed size that is never evicted from: keys whose hashes name
//! the same place share a member.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use super::{Context, Member, Picker, PickerFactory};

const DEFAULT_PLACES: usize = 1 << 14;
const MAX_PLACES: usize = 1 << 24;
/// Nobody was picked for the place yet.
const NOBODY: u64 = 0;

/// Keeps the requests of a key on the member that an inner picker chose for the first of them, for as long as it may be picked; all requests
/// without a key count as of one key.
///
/// Once its member is gone, a key gets another and stays there, also if the former comes back. Unlike with a
/// [`ConsistentHash`](super::ConsistentHash), members that join take no keys from others, and another process, or this one after a restart, may choose
/// otherwise. A member counts as the same under the same id.
///
/// With [zones](crate::Zone) or [priorities](crate::Priorities) each group of members has places of its own; requests without a key go to any.
///
/// Memory is bounded: there are so many places, and keys whose hash (XXH3) is the same modulo their number share one.
#[derive(Debug)]
pub struct Sticky<F> {
    inner: F,
    /// The hash of the member's id by place; outlives the pickers.
    places: Arc<[AtomicU64]>,
}

impl<F: PickerFactory> Sticky<F> {
    /// Keeps what this factory's pickers choose, in 16,384 places of 8 bytes.
    pub fn new(inner: F) -> Self {
        Self::with_places(inner, DEFAULT_PLACES)
    }

    /// With so many places, rounded up to a power of two and kept within 1 and 16,777,216.
    pub fn with_places(inner: F, places: usize) -> Self {
        let places = places.clamp(1, MAX_PLACES).next_power_of_two();
        Self { inner, places: (0..places).map(|_| AtomicU64::new(NOBODY)).collect() }
    }
}

impl<F: PickerFactory> PickerFactory for Sticky<F> {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        Box::new(Stuck {
            inner: self.inner.build(members),
            places: self.places.clone(),
            hashes: members.iter().map(hash_of).collect(),
            directory: directory(members),
        })
    }

    /// With places of its own: a key of another group that has the same place would take it again and again.
    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        let inner = self.inner.another()?;
        Some(Box::new(Sticky::with_places(inner, self.places.len())))
    }
}

struct Stuck {
    inner: Box<dyn Picker>,
    places: Arc<[AtomicU64]>,
    /// The hash of each member's id.
    hashes: Box<[u64]>,
    /// An open hash table from there back to the index: at most half full, so that a search ends soon.
    directory: Box<[Option<u32>]>,
}

/// Never [`NOBODY`].
fn hash_of(member: &Member) -> u64 {
    xxh3_64(member.instance().id().as_bytes()).max(1)
}

fn directory(members: &[Member]) -> Box<[Option<u32>]> {
    let mut directory = vec![None; (members.len() * 2).next_power_of_two()];
    let mask = directory.len() - 1;
    for (member, index) in members.iter().zip(0u32..) {
        let mut at = hash_of(member) as usize & mask;
        while directory[at].is_some() {
            at = (at + 1) & mask;
        }
        directory[at] = Some(index);
    }
    directory.into()
}

impl Stuck {
    #[inline]
    fn index(&self, hash: u64) -> Option<usize> {
        let mask = self.directory.len() - 1;
        let from = hash as usize & mask;
        // It has an empty entry, so the search ends.
        for at in (from..=mask).chain(0..from) {
            let index = self.directory[at]? as usize;
            if self.hashes[index] == hash {
                return Some(index);
            }
        }
        None
    }

    /// Who is remembered for the key; if nobody who is there, whoever is chosen now.
    #[inline]
    fn keep(&self, context: &Context<'_>, choose: impl FnOnce() -> Option<usize>) -> Option<usize> {
        let hash = context.key.map_or(0, xxh3_64);
        let place = &self.places[hash as usize & (self.places.len() - 1)];
        // A place publishes nothing but itself, so relaxed ordering suffices.
        let known = place.load(Ordering::Relaxed);
        if let Some(index) = self.index(known) {
            return Some(index);
        }
        let chosen = choose()?;
        let new = *self.hashes.get(chosen)?;
        match place.compare_exchange(known, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(chosen),
            // Another request of the key was faster: both go there, if it knows the same members.
            Err(theirs) => self.index(theirs).or(Some(chosen)),
        }
    }
}

impl Picker for Stuck {
    fn pick(&self, members: &[Member], context: &Context<'_>) -> Option<usize> {
        self.keep(context, || self.inner.pick(members, context))
    }

    /// Whoever is not accepted is not remembered; who was accepted once stays.
    fn pick_where(&self, members: &[Member], context: &Context<'_>, accepts: &dyn Fn(usize) -> bool) -> Option<usize> {
        self.keep(context, || self.inner.pick_where(members, context, accepts))
    }

    fn may_pick(&self, index: usize) -> bool {
        self.inner.may_pick(index)
    }

    fn is_timed(&self) -> bool {
        self.inner.is_timed()
    }

    fn starts_by_weight(&self) -> bool {
        self.inner.starts_by_weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::testing::{member, members};
    use crate::picker::{Random, RoundRobin};

    fn pick<'a>(picker: &dyn Picker, members: &'a [Member], key: u32) -> &'a str {
        let at = picker.pick(members, &Context::default().with_key(&key.to_le_bytes())).unwrap();
        members[at].instance().id()
    }

    #[test]
    fn f12_nobody_where_there_is_nobody() {
        let factory = Sticky::new(RoundRobin::new());
        assert_eq!(factory.build(&[]).pick(&[], &Context::default()), None);
        let one = members(&[1]);
        assert_eq!(factory.build(&one).pick(&one, &Context::default()), Some(0));
        assert_eq!(factory.build(&[]).pick(&[], &Context::default()), None);
        assert_eq!(Sticky::with_places(Random, 0).build(&one).pick(&one, &Context::default()), Some(0));
    }

    #[test]
    fn f13_the_largest_weights_do_not_matter() {
        let members = members(&[u32::MAX, 0, u32::MAX]);
        let picker = Sticky::new(crate::picker::WeightedRoundRobin::new()).build(&members);
        let mut counts = [0; 3];
        for key in 0..10_000 {
            counts[pick(&*picker, &members, key).parse::<usize>().unwrap()] += 1;
        }
        assert!(counts[1] == 0 && counts[0] > 4_000 && counts[2] > 4_000, "{counts:?}");
    }

    #[test]
    fn a_key_stays_while_its_member_does_and_where_it_went_then() {
        let factory = Sticky::new(RoundRobin::new());
        let all: Vec<_> = ["a", "b", "c", "d"].iter().map(|id| member(id, 1)).collect();
        let picker = factory.build(&all);
        let first: Vec<_> = (0..1_000).map(|key| pick(&*picker, &all, key)).collect();
        assert!(all.iter().all(|m| first.iter().filter(|id| **id == m.instance().id()).count() > 150));
        assert!((0..1_000).all(|key| pick(&*picker, &all, key) == first[key as usize]));
        // "b" leaves, "aa" joins.
        let next: Vec<_> = ["a", "aa", "c", "d"].iter().map(|id| member(id, 1)).collect();
        let picker = factory.build(&next);
        let second: Vec<_> = (0..1_000).map(|key| pick(&*picker, &next, key)).collect();
        assert!(first.iter().zip(&second).all(|(before, now)| *before == "b" || before == now));
        let picker = factory.build(&all);
        for (key, before) in (0..1_000).zip(&second) {
            let now = pick(&*picker, &all, key);
            assert!(now == *before || *before == "aa", "back is no reason to go back");
        }
    }

    #[test]
    fn without_a_key_the_picker_stays() {
        let members = members(&[1; 9]);
        let picker = Sticky::new(Random).build(&members);
        let first = picker.pick(&members, &Context::default());
        assert!((0..1_000).all(|_| picker.pick(&members, &Context::default()) == first));
    }
}
