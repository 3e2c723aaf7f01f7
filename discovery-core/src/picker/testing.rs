//! Every picker there is, for tests that are about all of them.

use super::*;
use crate::balancer::testing::timed_member;
use crate::{Clock, Outcome};

/// A picker, and what can be asked of it.
pub(crate) struct Kind {
    /// The type as it is exported, and what it stands around.
    pub(crate) name: &'static str,
    /// How far from its share of many requests with different keys a member may be, as a part of it.
    pub(crate) spread: f64,
    pub(crate) factory: fn() -> Box<dyn PickerFactory>,
    /// Whether shares are as the weights are, as closely as that.
    pub(crate) by_weight: bool,
}

impl Kind {
    const fn whatever_weight(self) -> Self {
        Self { by_weight: false, ..self }
    }
}

const fn kind(name: &'static str, spread: f64, factory: fn() -> Box<dyn PickerFactory>) -> Kind {
    Kind { name, spread, factory, by_weight: true }
}

/// As many slots as are even enough for a few members.
const SLOTS: usize = 1 << 14;

/// A new picker is tested wherever all are as soon as it stands here, and has to.
pub(crate) const EVERY: [Kind; 17] = [
    kind("Random", 0.05, || Box::new(Random)).whatever_weight(),
    kind("RoundRobin", 0.001, || Box::new(RoundRobin::new())).whatever_weight(),
    kind("WeightedRoundRobin", 0.001, || Box::new(WeightedRoundRobin::new())),
    kind("WeightedRandom", 0.05, || Box::new(WeightedRandom)),
    kind("LeastRequests", 0.1, || Box::new(LeastRequests)),
    kind("PowerOfTwo", 0.05, || Box::new(PowerOfTwo)),
    kind("PeakEwma", 0.05, || Box::new(PeakEwma)),
    kind("ConsistentHash", 0.1, || Box::new(ConsistentHash::with_slots(SLOTS))),
    kind("BoundedLoad", 0.1, || Box::new(BoundedLoad::new(ConsistentHash::with_slots(SLOTS)))),
    // The shares of a ring are as uneven as its points lie.
    kind("Ketama", 0.4, || Box::new(Ketama::new())).whatever_weight(),
    kind("DubboRing", 0.4, || Box::new(DubboRing)).whatever_weight(),
    kind("GoZeroRing", 0.4, || Box::new(GoZeroRing)).whatever_weight(),
    kind("Sticky<RoundRobin>", 0.05, || Box::new(Sticky::new(RoundRobin::new()))).whatever_weight(),
    kind("Sticky<WeightedRandom>", 0.1, || Box::new(Sticky::new(WeightedRandom))),
    kind("Subset<WeightedRoundRobin>", 0.001, || Box::new(Subset::new(WeightedRoundRobin::new(), 3, "client"))),
    kind("Subset<PeakEwma>", 0.05, || Box::new(Subset::new(PeakEwma, 3, "client"))),
    kind("Subset<Sticky<BoundedLoad>>", 0.15, || {
        Box::new(Subset::new(Sticky::new(BoundedLoad::new(ConsistentHash::with_slots(SLOTS))), 3, "client"))
    }),
];

/// How often each is picked while nothing else changes.
pub(crate) fn counts(picker: &dyn Picker, members: &[Member], picks: usize) -> Vec<usize> {
    let mut counts = vec![0; members.len()];
    (0..picks).for_each(|_| counts[picker.pick(members, &Context::default()).unwrap()] += 1);
    counts
}

/// How many are in flight, and how far from its weight's share a member may be then: idle or busy they are close, in between a request is more
/// than some members' share.
const LOADS: [(usize, f64); 5] = [(0, 0.08), (1, 0.75), (3, 0.4), (20, 0.25), (100, 0.08)];

/// Asserts that shares are as the weights are, at any load.
pub(crate) fn assert_shares(factory: &dyn PickerFactory) {
    const PICKS: u32 = 40_000;
    fastrand::seed(7);
    let (clock, _) = Clock::manual();
    for weights in [&[100, 100, 100, 90][..], &[1, 2, 4], &[u32::MAX, u32::MAX / 2], &[100, 10], &[u32::MAX, 1]] {
        let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        for (in_flight, spread) in LOADS {
            let members: Vec<_> = weights.iter().map(|weight| timed_member("m", *weight, &clock)).collect();
            let (picker, mut open, mut counts) = (factory.build(&members), Vec::new(), vec![0u32; weights.len()]);
            for _ in 0..PICKS {
                let at = picker.pick(&members, &Context::default()).unwrap();
                counts[at] += 1;
                open.push(members[at].begin_at(Some(clock.now())));
                while open.len() > in_flight {
                    open.swap_remove(fastrand::usize(..open.len())).finish(Outcome::Success);
                }
            }
            for (count, weight) in counts.iter().zip(weights) {
                let share = f64::from(PICKS) * f64::from(*weight) / sum;
                let is_near = (f64::from(*count) - share).abs() <= share * spread + 2.0;
                assert!(is_near, "{counts:?} for {weights:?} with {in_flight} in flight");
            }
        }
    }
}

/// Whatever this folder exports and is no part of the contract is a picker.
#[test]
fn every_picker_stands_in_the_list() {
    let lines = include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("pub use "));
    let exported = lines.filter(|line| !line.starts_with("crate::")).flat_map(|line| {
        let names = line.split_once("::").unwrap().1;
        names.trim_matches(['{', '}', ';']).split(", ").collect::<Vec<_>>()
    });
    let missing: Vec<_> = exported.filter(|name| !EVERY.iter().any(|kind| kind.name.starts_with(name))).collect();
    assert!(missing.is_empty(), "{missing:?} stand in no test of all pickers");
}
