//! What is known of one instance id from its requests, and the guard of one that is in flight.
//!
//! The guard owns a share of the [`Flights`], and nobody else does but the [`Cell`]: so the number of shares is the number of requests in
//! flight, counted by the very addition that keeps the value alive. Successes are not counted at all: they are what was begun less what
//! became of the others. A pick with its report costs two atomic additions in all, three without a [`Reader`](super::Reader), and two more
//! where its time is taken.

use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::ejection::Sentence;
use super::health::Health;
use super::latency::{Latency, Timing};
use super::outlier::Tally;
use super::tab::Tabs;
use crate::Instance;
use crate::clock::Clock;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Counted, Mutex, MutexGuard};

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The instance did its work.
    Success,
    /// The instance failed, or the way to it while it had the request.
    Failure,
    /// No connection was made, so nothing was sent. The next picks go elsewhere if there is anybody else.
    Unreachable,
    /// The caller lost interest before the end.
    Cancelled,
}

/// Everything that belongs to an instance's id and survives every update of the set (P3).
///
/// Each number but `begun` stands for itself and publishes nothing else, so relaxed ordering suffices.
#[derive(Debug)]
pub(super) struct Flights {
    /// The newest record of the instance.
    record: ArcSwap<Instance>,
    /// How many were begun, without those on open [tabs](super::tab). Whoever sees one begun also sees it in flight, hence release and acquire.
    begun: AtomicU64,
    failure: AtomicU64,
    unreachable: AtomicU64,
    cancelled: AtomicU64,
    /// Those that were never sent.
    discarded: AtomicU64,
    pub(super) latency: Latency,
    pub(super) health: Health,
    clock: Clock,
}

impl Flights {
    /// Where that is counted; `None` for what is left when all others are.
    fn counter(&self, outcome: Option<Outcome>) -> Option<&AtomicU64> {
        match outcome {
            Some(Outcome::Success) => None,
            Some(Outcome::Failure) => Some(&self.failure),
            Some(Outcome::Unreachable) => Some(&self.unreachable),
            Some(Outcome::Cancelled) => Some(&self.cancelled),
            None => Some(&self.discarded),
        }
    }

    pub(super) fn add_begun(&self, begun: u64) {
        self.begun.fetch_add(begun, Ordering::Release);
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }
}

/// The one lasting owner of an instance's flights. It is shared as it is, never taken apart, so that it counts once.
#[derive(Debug)]
pub(super) struct Cell {
    flights: Counted<Flights>,
    tabs: Arc<Tabs>,
    /// Never looked at by a pick.
    notes: Mutex<Notes>,
}

/// What is known of an instance besides its requests.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// When this process saw it join, or start anew; `None` if it was there from the beginning.
    pub(super) joined: Option<Instant>,
    pub(super) sentence: Sentence,
    /// What was counted when rates were judged last.
    judged: Tally,
    /// What the health check said.
    pub(super) unhealthy: Option<Arc<str>>,
}

impl Cell {
    pub(super) fn new(
        instance: Arc<Instance>,
        health: Health,
        clock: Clock,
        joined: Option<Instant>,
        tabs: Arc<Tabs>,
    ) -> Self {
        let flights = Counted::new(Flights {
            record: ArcSwap::new(instance),
            begun: AtomicU64::new(0),
            failure: AtomicU64::new(0),
            unreachable: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            latency: Latency::default(),
            health,
            clock,
        });
        Self { flights, tabs, notes: Mutex::new(Notes { joined, ..Notes::default() }) }
    }

    #[inline]
    pub(super) fn flights(&self) -> &Flights {
        &self.flights
    }

    pub(super) fn tabs(&self) -> &Tabs {
        &self.tabs
    }

    pub(super) fn joined(&self) -> Option<Instant> {
        self.notes().joined
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted since the last call, given what was ever counted.
    pub(super) fn tally(&self, counted: Tally) -> Tally {
        counted.since(std::mem::replace(&mut self.notes().judged, counted))
    }

    /// The same flights under a newer record.
    pub(super) fn renew(&self, instance: Arc<Instance>) {
        self.flights.record.store(instance);
    }

    /// How many requests are in flight.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        // One share is the cell's own.
        u32::try_from(Counted::strong_count(&self.flights) - 1).unwrap_or(u32::MAX)
    }

    /// How many ended this way; of successes, given how many were begun. While requests begin or end it may be a few too low for a moment,
    /// never too high: what is in flight is counted before it is begun, and after what became of it.
    pub(super) fn count(&self, outcome: Outcome, begun: impl FnOnce() -> u64) -> u64 {
        let read = |outcome| self.flights.counter(outcome).map_or(0, |counter| counter.load(Ordering::Relaxed));
        if outcome != Outcome::Success {
            return read(Some(outcome));
        }
        // Read in this order, each that is begun is seen in flight or among the others: giving up a share of an `Arc` is a release.
        let begun = begun();
        let pending = u64::from(self.pending());
        fence(Ordering::Acquire);
        let others = [Some(Outcome::Failure), Some(Outcome::Unreachable), Some(Outcome::Cancelled), None];
        others.into_iter().map(read).fold(begun.saturating_sub(pending), u64::saturating_sub)
    }

    /// Begins a request, which the caller counts as begun.
    #[inline]
    pub(super) fn begin(&self, timing: Timing) -> Pick {
        self.flights.latency.begin(timing, self.pending());
        Pick { flights: self.flights.clone(), timing, outcome: Some(Outcome::Cancelled) }
    }
}

/// A picked instance. Give it the outcome at the end of the response; dropped without one, the request counts as cancelled (P8).
#[must_use = "dropping a pick at once counts the request as cancelled"]
pub struct Pick {
    flights: Counted<Flights>,
    timing: Timing,
    /// What is counted at the end; `None` for a request that was never sent.
    outcome: Option<Outcome>,
}

impl Pick {
    /// The instance that takes the request, as its newest record has it.
    pub fn instance(&self) -> Arc<Instance> {
        self.flights.record.load_full()
    }

    /// Reports how the request ended.
    #[inline]
    pub fn finish(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// Gives the pick back: no request was sent, so none is counted.
    pub fn discard(mut self) {
        self.outcome = None;
    }
}

impl std::fmt::Debug for Pick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pick").field("instance", &self.instance().key()).finish_non_exhaustive()
    }
}

impl Drop for Pick {
    #[inline]
    fn drop(&mut self) {
        self.flights.latency.end(self.timing, &self.flights.clock, self.outcome);
        if let Some(counter) = self.flights.counter(self.outcome) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(outcome) = self.outcome {
            self.flights.health.heard(outcome);
        }
    }
}
