//! Every picker there is, for tests that are about all of them.

use super::*;

/// A picker, and what can be asked of it.
pub(crate) struct Kind {
    /// The type as it is exported, and what it stands around.
    pub(crate) name: &'static str,
    /// How far from its share of many requests with different keys a member may be, as a part of it.
    pub(crate) spread: f64,
    pub(crate) factory: fn() -> Box<dyn PickerFactory>,
}

const fn kind(name: &'static str, spread: f64, factory: fn() -> Box<dyn PickerFactory>) -> Kind {
    Kind { name, spread, factory }
}

/// As many slots as are even enough for a few members.
const SLOTS: usize = 1 << 14;

/// A new picker is tested wherever all are as soon as it stands here, and has to.
pub(crate) const EVERY: [Kind; 17] = [
    kind("Random", 0.05, || Box::new(Random)),
    kind("RoundRobin", 0.001, || Box::new(RoundRobin::new())),
    kind("WeightedRoundRobin", 0.001, || Box::new(WeightedRoundRobin::new())),
    kind("WeightedRandom", 0.05, || Box::new(WeightedRandom)),
    kind("LeastRequests", 0.05, || Box::new(LeastRequests)),
    kind("PowerOfTwo", 0.05, || Box::new(PowerOfTwo)),
    kind("PeakEwma", 0.05, || Box::new(PeakEwma)),
    kind("ConsistentHash", 0.1, || Box::new(ConsistentHash::with_slots(SLOTS))),
    kind("BoundedLoad", 0.1, || Box::new(BoundedLoad::new(ConsistentHash::with_slots(SLOTS)))),
    // The shares of a ring are as uneven as its points lie.
    kind("Ketama", 0.4, || Box::new(Ketama::new())),
    kind("DubboRing", 0.4, || Box::new(DubboRing)),
    kind("GoZeroRing", 0.4, || Box::new(GoZeroRing)),
    kind("Sticky<RoundRobin>", 0.05, || Box::new(Sticky::new(RoundRobin::new()))),
    kind("Sticky<WeightedRandom>", 0.1, || Box::new(Sticky::new(WeightedRandom))),
    kind("Subset<WeightedRoundRobin>", 0.001, || Box::new(Subset::new(WeightedRoundRobin::new(), 3, "client"))),
    kind("Subset<PeakEwma>", 0.05, || Box::new(Subset::new(PeakEwma, 3, "client"))),
    kind("Subset<Sticky<BoundedLoad>>", 0.15, || {
        Box::new(Subset::new(Sticky::new(BoundedLoad::new(ConsistentHash::with_slots(SLOTS))), 3, "client"))
    }),
];

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
