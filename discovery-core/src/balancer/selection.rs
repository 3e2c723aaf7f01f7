//! Who may be picked: built anew whenever the set or somebody's health changes.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Member;
use super::plan::Place;
use super::tier::Tier;
use super::zone::is_busier;
use crate::picker::Context;
use crate::snapshot::Freshness;
use crate::{Error, ErrorKind};

/// Sets the hash that draws a tier apart from that of pickers, or all keys of a tier would be those of a part of its picker's table.
const TIERS: u64 = 0x7465_7273;

/// One membership, its tiers and their pickers, behind one atomic pointer.
pub(super) struct Selection {
    /// Counts selections.
    pub(super) number: u64,
    pub(super) service: Arc<str>,
    pub(super) freshness: Freshness,
    /// How many changes of health it heeds.
    pub(super) health: u64,
    /// Everybody in the set under the weights of their records, sorted by id.
    pub(super) known: Box<[Member]>,
    /// What becomes of each of the known.
    pub(super) places: Box<[Place]>,
    /// While anybody starts slowly: which part of its weight each of the known has.
    pub(super) shares: Option<Box<[f64]>>,
    /// The only tier, most of the time; without members if there is nobody.
    pub(super) first: Tier,
    /// Whether that is all, and nobody is passed over: one question instead of two for most picks.
    pub(super) is_plain: bool,
    /// The others, sorted by level.
    pub(super) more: Box<[Tier]>,
    /// For each tier where its share ends, in 2^-32 of all requests; the last with a share ends at 2^32.
    pub(super) ends: Box<[u64]>,
    /// How much busier a local member may be than one elsewhere.
    pub(super) spill_factor: Option<f64>,
    /// Whether a picker goes by time.
    pub(super) is_timed: bool,
}

impl std::fmt::Debug for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (known, members) = (self.known.len(), self.tiers().map(|tier| tier.members.len()).sum::<usize>());
        f.debug_struct("Selection")
            .field("service", &self.service)
            .field("known", &known)
            .field("members", &members)
            .finish()
    }
}

impl Selection {
    pub(super) fn tiers(&self) -> impl Iterator<Item = &Tier> {
        std::iter::once(&self.first).chain(&self.more)
    }

    pub(super) fn tier(&self, number: usize) -> Option<&Tier> {
        if number == 0 { Some(&self.first) } else { self.more.get(number - 1) }
    }

    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        let at = self.known.binary_search_by(|member| member.instance().id().cmp(id)).ok()?;
        self.known.get(at)
    }

    /// The member that takes the request.
    #[inline]
    pub(super) fn select(&self, context: &Context<'_>) -> Option<&Member> {
        if !self.is_plain {
            return self.draw(context);
        }
        let index = self.first.picker.pick(&self.first.members, context)?;
        self.at(&self.first, index)
    }

    /// The member at this place of a tier, or who stands in for it.
    #[inline]
    pub(super) fn at<'a>(&'a self, tier: &'a Tier, index: usize) -> Option<&'a Member> {
        let member = tier.members.get(index)?;
        if tier.admits(member) { Some(member) } else { Some(self.stand_in(tier, index).unwrap_or(member)) }
    }

    /// Draws a tier by the shares, and its member. One random number serves for both choices that chance has here; for a request with a key it
    /// is the key's hash, so that all requests of the key go to one tier (P6), and a local member that is busier than others keeps its keys.
    #[inline(never)]
    fn draw(&self, context: &Context<'_>) -> Option<&Member> {
        if self.more.is_empty() {
            return self.at(&self.first, self.first.choose(context)?);
        }
        let random = context.key.map_or_else(|| fastrand::u64(..), |key| xxh3_64_with_seed(key, TIERS));
        let number = self.ends.partition_point(|end| *end <= random >> 32);
        let tier = self.tier(number)?;
        let index = tier.choose(context)?;
        let beside = |next: &&Tier| !tier.level.elsewhere && next.level.priority == tier.level.priority;
        let factor = self.spill_factor.filter(|_| context.key.is_none());
        if let (Some(factor), Some(next)) = (factor, self.tier(number + 1).filter(beside)) {
            let other = usize::try_from(((random & u64::from(u32::MAX)) * next.members.len() as u64) >> 32).ok()?;
            if let (Some(local), Some(other)) = (tier.members.get(index), next.members.get(other))
                && next.admits(other)
                && is_busier(local, other, factor)
            {
                return self.at(next, next.choose(context)?);
            }
        }
        self.at(tier, index)
    }

    /// Who takes the place of a member that became unavailable since this was built: a neighbour, one of another tier, or one that waits.
    #[cold]
    fn stand_in<'a>(&'a self, tier: &'a Tier, index: usize) -> Option<&'a Member> {
        let other = || self.tiers().find_map(|tier| tier.stand_in(0));
        let mut known = self.places.iter().zip(&self.known);
        let mut waiting = || known.find(|(place, member)| matches!(place, Place::Waiting(_)) && tier.admits(member));
        tier.stand_in(index).or_else(other).or_else(|| waiting().map(|(_, member)| member))
    }

    /// Why nobody can be picked: which service, how many are known, how stale, and the store's last error.
    #[cold]
    pub(super) fn nobody(&self) -> Error {
        let known = self.known.len();
        let count = |of: fn(&Place) -> bool| self.places.iter().filter(|place| of(place)).count();
        let filtered = count(|place| matches!(place, Place::Filtered(_)));
        let why = if self.freshness.is_loading() {
            "no set was read from the registry yet".to_owned()
        } else if known == 0 {
            "no instance is registered".to_owned()
        } else if count(|place| *place == Place::NoWeight) == known {
            format!("{known} known, all with weight 0")
        } else if filtered == known {
            format!("{known} known, no filter left any")
        } else if self.first.members.is_empty() {
            format!("{known} known, {filtered} filtered out, the others with weight 0")
        } else {
            let members: usize = self.tiers().map(|tier| tier.members.len()).sum();
            format!("{known} known, the picker chose none of the {members} it may pick")
        };
        Error::new(ErrorKind::NoInstance, "pick", format!("an instance of {:?}", self.service), why + &self.staleness())
    }

    /// The refusal of a set that is older than the caller allows.
    pub(super) fn too_stale(&self) -> Error {
        let why = format!("{} known, but the set is older than allowed", self.known.len());
        Error::new(ErrorKind::NoInstance, "pick", format!("an instance of {:?}", self.service), why + &self.staleness())
    }

    fn staleness(&self) -> String {
        if self.freshness.is_live() { String::new() } else { format!("; {}", self.freshness) }
    }
}
