//! Hash rings as other clients of the same fleet have them, for those whose keys must go to the same servers as theirs.
//!
//! Source: D. Karger et al., "Consistent Hashing and Random Trees" (STOC 1997): each member has points on a ring of hashes, and a key belongs
//! to the first point at or after its own hash. Which hash, how many points and of what text is the business of each of the files here.
//! Who need not agree with others is better served by [`ConsistentHash`](super::ConsistentHash): it is faster and its shares are more even.

mod digest;
mod dubbo;
mod go_zero;
mod ketama;

pub use dubbo::DubboRing;
pub use go_zero::GoZeroRing;
pub use ketama::Ketama;

use super::{Context, Member, Picker};
use crate::Endpoint;

/// The points of all members, sorted. A request without a key goes to a random point.
struct Ring {
    hashes: Box<[u64]>,
    /// The index of the member that each point belongs to.
    owners: Box<[u32]>,
    hash: fn(&[u8]) -> u64,
}

impl Ring {
    /// Of several points with one hash the first counts.
    fn new(mut points: Vec<(u64, u32)>, hash: fn(&[u8]) -> u64) -> Self {
        points.sort_by_key(|(hash, _)| *hash);
        points.dedup_by_key(|(hash, _)| *hash);
        let (hashes, owners): (Vec<_>, Vec<_>) = points.into_iter().unzip();
        Self { hashes: hashes.into(), owners: owners.into(), hash }
    }
}

impl Ring {
    /// The first point that counts for the request; as many as there are if that is the first of all again.
    fn point(&self, context: &Context<'_>) -> usize {
        match context.key {
            Some(key) => {
                let hash = (self.hash)(key);
                self.hashes.partition_point(|point| *point < hash)
            }
            None => fastrand::usize(..self.hashes.len().max(1)),
        }
    }
}

impl Picker for Ring {
    fn pick(&self, _members: &[Member], context: &Context<'_>) -> Option<usize> {
        // After the last comes the first.
        self.owners.get(self.point(context)).or_else(|| self.owners.first()).map(|owner| *owner as usize)
    }

    /// No: the points are as many as the peers have for the weights of the records, or all would lie elsewhere.
    fn starts_by_weight(&self) -> bool {
        false
    }

    /// Whoever is not accepted lends the key to the owner of the next point, as if it were not there.
    fn pick_where(&self, _members: &[Member], context: &Context<'_>, accepts: &dyn Fn(usize) -> bool) -> Option<usize> {
        let (before, from) = self.owners.split_at_checked(self.point(context))?;
        let mut owners = from.iter().chain(before).map(|owner| *owner as usize);
        let first = owners.next()?;
        if accepts(first) {
            return Some(first);
        }
        owners.find(|owner| *owner != first && accepts(*owner)).or(Some(first))
    }
}

/// The address that the peers hash, `host:port`: that of the first endpoint.
fn address(member: &Member) -> String {
    member.instance().endpoints().first().map(Endpoint::authority).unwrap_or_default()
}

/// Those with weight, with their indexes.
fn weighty(members: &[Member]) -> impl Iterator<Item = (&Member, u32)> {
    members.iter().zip(0..).filter(|(member, _)| member.weight() > 0)
}

#[cfg(test)]
mod tests;
