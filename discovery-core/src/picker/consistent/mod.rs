//! Consistent hashing by a table of slots.
//!
//! Source: rendezvous hashing (D. Thaler and C. Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM ToN 1998) of slots
//! instead of keys: the key's hash names a slot, and the slot belongs to the member that claims it first, see [`seat`]. A pick is one hash and
//! two reads, and because each slot goes its own way, a leaver moves exactly its own keys and a joiner takes keys for nobody but itself.

mod bounded;
mod orders;
mod seat;
mod slots;

use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

pub use bounded::BoundedLoad;
use seat::mix;
use slots::Slots;

use super::{Context, Member, Picker, PickerFactory};

/// As many slots that of 1,000 members none has more than 1.10 times its share.
const DEFAULT_SLOTS: usize = 1 << 20;
const MIN_BITS: u32 = 6;
const MAX_BITS: u32 = 24;

/// Sends a key ([`Context::with_key`]) to the same member from every process that knows the same members (P6).
///
/// - The mapping depends on the members' ids and weights, on the number of slots and on nothing else: neither on their order nor on
///   who was there before. Members that leave move only their own keys, members that join take only what becomes theirs, and a
///   restart under the same id moves nothing. A changed weight moves keys only to or from its member.
/// - A member's share is in proportion to its weight. Of n members with equal weights the largest share is about
///   `1 + 3.3 * sqrt(n / (2 * slots))` of the mean: 1.07 with 1,000 members.
/// - A request without a key goes to a random member, by weight.
///
/// The hash is XXH3 with 64 bits and no seed, of the key and of the id; the same on every platform and in every release.
/// Up to 65,534 members take part.
#[derive(Debug)]
pub struct ConsistentHash {
    bits: u32,
    /// Written by `build` alone.
    slots: Mutex<Slots>,
}

impl ConsistentHash {
    /// Makes a factory with 1,048,576 slots.
    ///
    /// They take 6 MiB. When many members come at once, as at the beginning, they take a tenth of a second to take in; one of 1,000 that comes
    /// or goes takes about 0.2 ms, and after long churn a leaver about one, since who comes next for its slots has to be looked for anew. A change
    /// of up to 16 members takes some 10 ms: services that stay small do with fewer slots.
    pub fn new() -> Self {
        Self::with_slots(DEFAULT_SLOTS)
    }

    /// Makes a factory with so many slots, rounded up to a power of two and kept within 64 and 16,777,216; each takes 6 bytes. Those who
    /// shall agree need the same number. Memory and time go with it: 65,536 are enough for 60 members.
    pub fn with_slots(slots: usize) -> Self {
        let bits = slots.checked_next_power_of_two().map_or(MAX_BITS, usize::ilog2);
        Self::with_bits(bits.clamp(MIN_BITS, MAX_BITS))
    }

    fn with_bits(bits: u32) -> Self {
        Self { bits, slots: Mutex::new(Slots::new(bits)) }
    }

    /// A factory of as many slots.
    fn anew(&self) -> Self {
        Self::with_bits(self.bits)
    }

    fn table(&self, members: &[Member]) -> Table {
        let mut keyed: Vec<_> = members
            .iter()
            .zip(0u32..)
            .filter(|(member, _)| member.weight() > 0)
            .map(|(member, index)| (xxh3_64(member.instance().id().as_bytes()), member.weight(), index))
            .collect();
        keyed.sort_unstable();
        // Two ids with one hash would claim every slot at the same time; one of them stands for both.
        keyed.dedup_by_key(|(key, ..)| *key);
        let taken: Vec<_> = keyed.iter().map(|(key, weight, _)| (*key, *weight)).collect();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.update(&taken);
        let mut indexes = vec![u32::MAX; slots.seats()];
        // Both are sorted by key, and the roster is the beginning.
        for ((_, seat), (.., index)) in slots.roster().iter().zip(&keyed) {
            indexes[usize::from(*seat)] = *index;
        }
        let owners = slots.owners().clone();
        let shift = u64::BITS - owners.len().checked_ilog2().unwrap_or(1);
        Table { owners, indexes: indexes.into(), shift }
    }
}

impl Default for ConsistentHash {
    fn default() -> Self {
        Self::new()
    }
}

/// Which member owns each slot.
#[derive(Debug)]
struct Table {
    owners: Arc<Vec<u16>>,
    /// The member's index by seat number: a change of the members shifts indexes, but not seats.
    indexes: Box<[u32]>,
    shift: u32,
}

impl Table {
    #[inline]
    fn owner(&self, hash: u64) -> Option<usize> {
        let seat = self.owners.get((hash >> self.shift) as usize)?;
        self.indexes.get(usize::from(*seat)).map(|index| *index as usize)
    }
}

/// The hash of the request's key, or a random number without one.
#[inline]
fn hash(context: &Context<'_>) -> u64 {
    context.key.map_or_else(|| fastrand::u64(..), xxh3_64)
}

impl Picker for Table {
    #[inline]
    fn pick(&self, _members: &[Member], context: &Context<'_>) -> Option<usize> {
        self.owner(hash(context))
    }
}

impl PickerFactory for ConsistentHash {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        Box::new(self.table(members))
    }

    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        Some(Box::new(self.anew()))
    }
}

#[cfg(test)]
mod tests;
