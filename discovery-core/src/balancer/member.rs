//! One instance as a picker sees it.

use std::sync::Arc;

use super::flight::{Cell, Outcome, Pick};
use super::health::{Heed, Objection, Objections};
use super::latency::Timing;
use crate::Instance;
use crate::clock::Moment;

/// One instance that may be picked, with its weight of the moment and what is known of its requests.
#[derive(Debug, Clone)]
pub struct Member {
    instance: Arc<Instance>,
    weight: u32,
    cell: Arc<Cell>,
}

impl Member {
    pub(super) fn new(instance: Arc<Instance>, weight: u32, cell: Arc<Cell>) -> Self {
        Self { instance, weight, cell }
    }

    /// The instance, as its record was when this membership was built.
    pub fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// Its weight at the moment: that of its record, for a picker that [starts by it](crate::Picker::starts_by_weight) less while it starts
    /// slowly. Never 0 for a member that a picker sees.
    #[inline]
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// How many requests of this process are in flight there.
    #[inline]
    pub fn pending(&self) -> u32 {
        self.cell.pending()
    }

    /// How many requests ended this way. While requests begin or end, successes may be a few too low for a moment.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.cell.count(outcome, || self.cell.tabs().begun(self, || self.cell.flights().begun()))
    }

    /// What an answer is expected to take in nanoseconds: a peak-sensitive average that fades by 1/e in ten seconds, or, if that is
    /// more, how long nothing has ended while `pending` requests are in flight. `None` if nothing is known, or if the picker does not go by
    /// time.
    #[inline]
    pub fn latency(&self, now: Moment, pending: u32) -> Option<f32> {
        self.cell.flights().latency.expected(now, pending)
    }

    /// Whether a request that was timed has told how long it takes.
    #[inline]
    pub(crate) fn has_latency(&self) -> bool {
        self.cell.flights().latency.is_known()
    }

    /// Whether nobody objects to it: it is reachable, passes its health checks and is not ejected.
    #[inline]
    pub fn is_available(&self) -> bool {
        Heed::ALL.admits(self.objections())
    }

    /// What stands against it.
    #[inline]
    pub(super) fn objections(&self) -> Objections {
        self.cell.flights().health.objections()
    }

    /// Whether whoever keeps the connections says that it can be reached.
    pub fn is_reachable(&self) -> bool {
        !self.cell.flights().health.has(Objection::Unreachable)
    }

    pub(super) fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    /// Begins a request that the caller counts.
    #[inline]
    pub(super) fn begin_counted(&self, timing: Timing) -> Pick {
        self.cell.begin(timing)
    }

    /// Begins a request.
    #[inline]
    pub(super) fn begin(&self, timing: Timing) -> Pick {
        let pick = self.cell.begin(timing);
        self.cell.flights().add_begun(1);
        pick
    }

    /// Begins a request that is timed from this moment on, or not.
    #[cfg(test)]
    pub(crate) fn begin_at(&self, at: Option<Moment>) -> Pick {
        self.begin(at.map_or(Timing::Off, Timing::Since))
    }

    /// The same member with a weight of the moment.
    pub(super) fn weighing(&self, weight: u32) -> Self {
        Self { weight, ..self.clone() }
    }

    /// Whether it is the same record under the same weight.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.instance, &other.instance)
            && self.weight == other.weight
            && Arc::ptr_eq(&self.cell, &other.cell)
    }
}
