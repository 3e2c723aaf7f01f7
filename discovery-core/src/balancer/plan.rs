//! Who takes part in a selection, in which tiers, and with what share.
//!
//! Sources: Envoy's "Panic threshold" (docs, upstream load balancing; its default is 50 %), and [`share`](super::share) for the shares of
//! priorities and of the caller's zone.

use std::collections::BTreeMap;

use super::health::{Heed, Objection, Objections};
use super::share::{capacity, shares, suffices};
use super::{BalancerOptions, Member};
use crate::State;

/// Envoy's default `healthy_panic_threshold`, in percent.
pub(super) const PANIC_THRESHOLD: u8 = 50;

/// Which instances a tier has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Level {
    pub(super) priority: u32,
    /// Whether they are not in the caller's zone.
    pub(super) elsewhere: bool,
}

/// What becomes of an instance in a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The filter with this number does not admit it.
    Filtered(usize),
    /// Its weight is 0.
    NoWeight,
    /// It is draining while others serve.
    Draining,
    /// Somebody objects.
    Objected,
    /// It may take requests, but others take them all.
    Waiting(Level),
    /// It is in the tier with this number.
    Tier(usize),
}

/// A tier to be.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) level: Level,
    /// The share of all requests; 0 where only those come that others cannot carry.
    pub(super) share: f64,
    pub(super) heed: Heed,
    /// Whether what is healthy is too little, so that the unhealthy take part.
    pub(super) panics: bool,
    /// Where its members are in the list of the known.
    pub(super) members: Vec<usize>,
}

/// What a selection is made of.
#[derive(Debug)]
pub(super) struct Plan {
    /// For each of the known.
    pub(super) places: Vec<Place>,
    /// Sorted by level.
    pub(super) groups: Vec<Group>,
    /// How many may take requests as far as their records say.
    pub(super) admitted: usize,
}

/// One who may take requests as far as its record says. Health may change meanwhile, so it is asked once.
struct Candidate {
    at: usize,
    objections: Objections,
    level: Level,
}

/// The weights of one zone, local or not, at one priority.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    count: u64,
    healthy: u64,
    known: u64,
    available: u64,
    reachable: u64,
}

pub(super) fn plan(known: &[Member], options: &BalancerOptions) -> Plan {
    let (mut places, mut admitted) = (Vec::with_capacity(known.len()), Vec::with_capacity(known.len()));
    for (at, member) in known.iter().enumerate() {
        let instance = member.instance();
        places.push(match options.filters.iter().position(|filter| !filter.admits(instance)) {
            Some(filter) => Place::Filtered(filter),
            None if instance.weight() == 0 => Place::NoWeight,
            None => {
                let priority = options.priorities.as_ref().map_or(0, |priorities| priorities.of(instance));
                let elsewhere = options.zone.as_ref().is_some_and(|zone| instance.zone() != Some(&**zone.name()));
                let level = Level { priority, elsewhere };
                admitted.push(Candidate { at, objections: member.objections(), level });
                Place::Objected
            }
        });
    }
    let count = admitted.len();
    let serves = |candidate: &Candidate| known[candidate.at].instance().state() == State::Serving;
    // The best that there are: without objections, at least reachable, anybody; of each the serving before the draining (P4, R9). A draining
    // instance still serves what it gets until its grace is over, so it is better than one that does not answer.
    let rank = |candidate: &Candidate| match candidate.objections {
        objections if Heed::ALL.admits(objections) => (0, !serves(candidate)),
        objections if Heed::UNREACHABLE.admits(objections) => (1, !serves(candidate)),
        _ => (2, !serves(candidate)),
    };
    let Some((stage, draining)) = admitted.iter().map(rank).min() else {
        return Plan { places, groups: Vec::new(), admitted: count };
    };
    let heed = [Heed::ALL, Heed::UNREACHABLE, Heed::NONE][stage];
    admitted.retain(|candidate| {
        let stays = serves(candidate) != draining;
        if !stays && !draining {
            places[candidate.at] = Place::Draining;
        }
        stays
    });
    let mut groups = groups(known, &admitted, heed, options);
    for candidate in admitted {
        match groups.binary_search_by_key(&candidate.level, |group| group.level) {
            Ok(tier) if groups[tier].heed.admits(candidate.objections) => {
                groups[tier].members.push(candidate.at);
                places[candidate.at] = Place::Tier(tier);
            }
            Err(_) if heed.admits(candidate.objections) => places[candidate.at] = Place::Waiting(candidate.level),
            _ => {}
        }
    }
    Plan { places, groups, admitted: count }
}

/// The levels that take requests, still without members.
fn groups(known: &[Member], field: &[Candidate], heed: Heed, options: &BalancerOptions) -> Vec<Group> {
    let mut levels: BTreeMap<u32, [Side; 2]> = BTreeMap::new();
    for candidate in field {
        let side = &mut levels.entry(candidate.level.priority).or_default()[usize::from(candidate.level.elsewhere)];
        let weight = u64::from(known[candidate.at].instance().weight());
        let if_admitted = |heed: Heed| if heed.admits(candidate.objections) { weight } else { 0 };
        side.count += 1;
        let sick = candidate.objections.has(Objection::Unhealthy) || candidate.objections.has(Objection::Ejected);
        side.healthy += u64::from(!sick);
        side.known += weight;
        side.available += if_admitted(heed);
        side.reachable += if_admitted(Heed::UNREACHABLE);
    }
    let both = |sides: &[Side; 2], of: fn(&Side) -> u64| of(&sides[0]) + of(&sides[1]);
    let capacities: Vec<_> =
        levels.values().map(|s| capacity(both(s, |s| s.available), both(s, |s| s.known))).collect();
    let may_panic = levels.len() == 1 || !suffices(capacities.iter().copied());
    let spills = options.zone.as_ref().is_some_and(|zone| zone.spill_factor().is_some());
    let mut groups = Vec::new();
    for ((priority, sides), share) in levels.iter().zip(shares(&capacities)).filter(|(_, share)| *share > 0.0) {
        let too_few = both(sides, |s| s.healthy) * 100 < both(sides, |s| s.count) * u64::from(options.panic_threshold);
        let panics = heed != Heed::ALL || (may_panic && too_few);
        let heed = if panics && heed == Heed::ALL { Heed::UNREACHABLE } else { heed };
        let available = |side: &Side| if heed == Heed::UNREACHABLE { side.reachable } else { side.available };
        let [local, elsewhere] = [available(&sides[0]), available(&sides[1])];
        let local_share = if elsewhere == 0 { 1.0 } else { capacity(local, sides[0].known) };
        let mut add = |elsewhere: bool, share: f64| {
            groups.push(Group {
                level: Level { priority: *priority, elsewhere },
                share,
                heed,
                panics,
                members: Vec::new(),
            });
        };
        if local > 0 {
            add(false, share * local_share);
        }
        if elsewhere > 0 && (local_share < 1.0 || spills) {
            add(true, share * (1.0 - local_share));
        }
    }
    groups
}
