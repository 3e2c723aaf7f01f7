//! Members for tests of pickers.

use super::Member;
use super::ejection::Quota;
use super::flight::Cell;
use super::health::{Bell, Health};
use crate::Instance;
use crate::clock::Clock;
use std::sync::Arc;

pub(crate) fn member(id: &str, weight: u32) -> Member {
    timed_member(id, weight, &Clock::default())
}

pub(crate) fn timed_member(id: &str, weight: u32, clock: &Clock) -> Member {
    of(Instance::builder("s").id(id).endpoint("grpc://h:1").weight(weight).build().unwrap(), clock)
}

pub(crate) fn of(instance: Instance, clock: &Clock) -> Member {
    let (weight, instance) = (instance.weight(), Arc::new(instance));
    let health = Health::new(Arc::new(Quota::new(None)), Bell::new());
    let cell = Cell::new(instance.clone(), health, clock.clone(), None, Arc::default());
    Member::new(instance, weight, Arc::new(cell))
}

/// Members with these weights, with ids in their order.
pub(crate) fn members(weights: &[u32]) -> Vec<Member> {
    weights.iter().enumerate().map(|(n, weight)| member(&format!("{n:05}"), *weight)).collect()
}
