//! What is counted of each instance, and the members that carry it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::Instance;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The instance did its work.
    Success,
    /// The instance or the way to it failed.
    Failure,
    /// The caller lost interest before the end.
    Cancelled,
}

/// Counters of one instance id; they survive every update of the set (P3).
///
/// Each counter stands for itself and publishes nothing else, so relaxed ordering suffices everywhere.
#[derive(Debug)]
struct Stats {
    pending: AtomicU32,
    success: AtomicU64,
    failure: AtomicU64,
    cancelled: AtomicU64,
    available: AtomicBool,
}

/// One instance that may be picked, together with its counters.
#[derive(Debug, Clone)]
pub struct Member(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    instance: Arc<Instance>,
    stats: Arc<Stats>,
}

impl Member {
    pub(crate) fn new(instance: Arc<Instance>) -> Self {
        let stats = Stats {
            pending: AtomicU32::new(0),
            success: AtomicU64::new(0),
            failure: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            available: AtomicBool::new(true),
        };
        Self(Arc::new(Inner { instance, stats: Arc::new(stats) }))
    }

    /// The same counters under a newer record.
    pub(super) fn renewed(&self, instance: &Arc<Instance>) -> Self {
        if Arc::ptr_eq(&self.0.instance, instance) {
            return self.clone();
        }
        Self(Arc::new(Inner { instance: instance.clone(), stats: self.0.stats.clone() }))
    }

    /// Whether it is the same record under the same counters.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The instance.
    pub fn instance(&self) -> &Arc<Instance> {
        &self.0.instance
    }

    /// How many requests of this process are in flight there.
    pub fn pending(&self) -> u32 {
        self.0.stats.pending.load(Ordering::Relaxed)
    }

    /// How many requests ended this way.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.counter(outcome).load(Ordering::Relaxed)
    }

    /// Whether it is known to be reachable; whoever keeps the connections says so.
    pub fn is_available(&self) -> bool {
        self.0.stats.available.load(Ordering::Relaxed)
    }

    /// Answers whether that is news.
    pub(super) fn set_available(&self, available: bool) -> bool {
        self.0.stats.available.swap(available, Ordering::Relaxed) != available
    }

    /// Begins a request.
    pub(crate) fn begin(&self) -> Pick {
        self.0.stats.pending.fetch_add(1, Ordering::Relaxed);
        Pick { member: self.clone(), outcome: Some(Outcome::Cancelled) }
    }

    fn counter(&self, outcome: Outcome) -> &AtomicU64 {
        match outcome {
            Outcome::Success => &self.0.stats.success,
            Outcome::Failure => &self.0.stats.failure,
            Outcome::Cancelled => &self.0.stats.cancelled,
        }
    }
}

/// A picked instance. Give it the outcome at the end of the response; dropped without one, the request counts as cancelled (P8).
#[derive(Debug)]
#[must_use = "dropping a pick at once counts the request as cancelled"]
pub struct Pick {
    member: Member,
    /// What is counted at the end; `None` for a request that was never sent.
    outcome: Option<Outcome>,
}

impl Pick {
    /// The instance that takes the request.
    pub fn instance(&self) -> &Arc<Instance> {
        self.member.instance()
    }

    /// The member that was picked.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Reports how the request ended.
    pub fn finish(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// Gives the pick back: no request was sent, so none is counted.
    pub fn discard(mut self) {
        self.outcome = None;
    }
}

impl Drop for Pick {
    fn drop(&mut self) {
        self.member.0.stats.pending.fetch_sub(1, Ordering::Relaxed);
        if let Some(outcome) = self.outcome {
            self.member.counter(outcome).fetch_add(1, Ordering::Relaxed);
        }
    }
}
