//! Whether an instance may be picked: one bit for each who has a say, and failures in a row.

use std::sync::Arc;

use tokio::sync::watch;

use super::Outcome;
use super::ejection::{EjectionCause, Quota};
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// What an active health check found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// The instance does its work.
    Healthy,
    /// It does not, and why.
    Unhealthy(Arc<str>),
}

/// Who says that an instance should get no requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objection {
    /// Whoever keeps the connections has none.
    Unreachable = 1,
    /// An active health check failed.
    Unhealthy = 2,
    /// Its requests went wrong.
    Ejected = 4,
}

/// All objections that can be raised.
const ANY: u8 = Objection::Unreachable as u8 | Objection::Unhealthy as u8 | Objection::Ejected as u8;
/// No objection, but a mark: the instance has left the set, so it is not ejected any more.
const GONE: u8 = 1 << 7;

/// The objections that stand against an instance at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Objections(u8);

impl Objections {
    pub(super) fn has(self, objection: Objection) -> bool {
        self.0 & objection as u8 != 0
    }
}

/// Which objections count. In panic some do not (P4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heed(u8);

impl Heed {
    pub(super) const ALL: Self = Self(ANY);
    /// That nobody can be reached is no opinion, so it is the last to be ignored.
    pub(super) const UNREACHABLE: Self = Self(Objection::Unreachable as u8);
    pub(super) const NONE: Self = Self(0);

    /// Whether somebody with these objections may be picked.
    #[inline]
    pub(super) fn admits(self, objections: Objections) -> bool {
        self.0 & objections.0 == 0
    }

    /// The same, and whoever cannot be reached may not.
    pub(super) fn and_unreachable(self) -> Self {
        Self(self.0 | Objection::Unreachable as u8)
    }
}

/// Tells the balancer's task that somebody's health changed, and how often it did.
#[derive(Debug, Clone)]
pub(super) struct Bell(Arc<watch::Sender<u64>>);

impl Bell {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(super) fn ring(&self) {
        self.0.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// How often it rang.
    pub(super) fn rings(&self) -> u64 {
        *self.0.borrow()
    }

    pub(super) fn listen(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// The health of one instance. Relaxed everywhere: a bit publishes nothing but itself.
#[derive(Debug)]
pub(super) struct Health {
    objections: AtomicU8,
    /// Why it was ejected last.
    cause: AtomicU8,
    /// Failures since the last success, whether or not a connection was made.
    in_a_row: AtomicU32,
    /// How many more of the balancer's instances may be ejected.
    quota: Arc<Quota>,
    bell: Bell,
}

impl Health {
    pub(super) fn new(quota: Arc<Quota>, bell: Bell) -> Self {
        Self { objections: AtomicU8::new(0), cause: AtomicU8::new(0), in_a_row: AtomicU32::new(0), quota, bell }
    }

    /// What stands against it.
    #[inline]
    pub(super) fn objections(&self) -> Objections {
        Objections(self.objections.load(Ordering::Relaxed) & ANY)
    }

    pub(super) fn has(&self, objection: Objection) -> bool {
        self.objections().has(objection)
    }

    /// Raises or withdraws an objection of others than the ejector, and tells the balancer if that is news.
    pub(super) fn set(&self, objection: Objection, raised: bool) {
        let bit = objection as u8;
        let before = if raised {
            self.objections.fetch_or(bit, Ordering::Relaxed)
        } else {
            self.objections.fetch_and(!bit, Ordering::Relaxed)
        };
        if (before & bit != 0) != raised {
            self.bell.ring();
        }
    }

    /// Ejects it at once if it is not and the quota allows; of many that say so at the same time one does it.
    pub(super) fn eject(&self, cause: EjectionCause) {
        if self.has(Objection::Ejected) || !self.quota.take() {
            return;
        }
        let free =
            |bits: u8| (bits & (Objection::Ejected as u8 | GONE) == 0).then_some(bits | Objection::Ejected as u8);
        if self.objections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_err() {
            return self.quota.give_back();
        }
        self.cause.store(cause as u8, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Ends its ejection. It begins with a clean slate.
    pub(super) fn readmit(&self) {
        self.forgive();
        let before = self.objections.fetch_and(!(Objection::Ejected as u8), Ordering::Relaxed);
        if before & Objection::Ejected as u8 != 0 {
            self.quota.give_back();
            self.bell.ring();
        }
    }

    /// Hears that it left the set: what it takes of the quota is for others.
    pub(super) fn retire(&self) {
        let before = self.objections.fetch_or(GONE, Ordering::Relaxed);
        if before & Objection::Ejected as u8 != 0 && before & GONE == 0 {
            self.quota.give_back();
        }
    }

    /// Why it was ejected last.
    pub(super) fn cause(&self) -> EjectionCause {
        EjectionCause::from_u8(self.cause.load(Ordering::Relaxed))
    }

    fn forgive(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
    }

    /// Hears how a request ended.
    #[inline]
    pub(super) fn heard(&self, outcome: Outcome) {
        match outcome {
            // Reading first keeps the line shared while all is well.
            Outcome::Success if self.in_a_row.load(Ordering::Relaxed) != 0 => self.forgive(),
            Outcome::Success | Outcome::Cancelled => {}
            Outcome::Failure | Outcome::Unreachable => self.failed(outcome),
        }
    }

    #[cold]
    fn failed(&self, outcome: Outcome) {
        let failures = self.in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if outcome == Outcome::Unreachable {
            self.eject(EjectionCause::Unreachable);
        } else if self.quota.is_too_many(failures) {
            // As in Envoy: if it may not be ejected now, it takes as many again.
            self.forgive();
            self.eject(EjectionCause::InARow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(limit: u32) -> (Health, Arc<Quota>) {
        let quota = Arc::new(Quota::new(Some(5)));
        quota.limit_to(limit);
        (Health::new(quota.clone(), Bell::new()), quota)
    }

    #[test]
    fn p04_objections_do_not_touch_each_other() {
        let (health, _) = health(1);
        health.eject(EjectionCause::Unreachable);
        health.set(Objection::Unreachable, true);
        health.set(Objection::Unreachable, false);
        assert!(health.has(Objection::Ejected) && !health.has(Objection::Unreachable));
        health.set(Objection::Unhealthy, true);
        health.readmit();
        assert!(Heed::UNREACHABLE.admits(health.objections()) && !Heed::ALL.admits(health.objections()));
    }

    #[test]
    fn p04_of_many_reports_at_once_one_ejects() {
        let (health, quota) = health(10);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| health.heard(Outcome::Unreachable)));
            }
        });
        assert_eq!((health.bell.rings(), quota.taken()), (1, 1));
        health.retire();
        health.retire();
        health.heard(Outcome::Unreachable);
        assert_eq!(quota.taken(), 0, "who is gone takes nothing of the quota");
    }

    #[test]
    fn p04_five_failures_in_a_row_eject_and_a_success_between_them_does_not() {
        let (health, _) = health(1);
        for outcome in [Outcome::Failure, Outcome::Failure, Outcome::Failure, Outcome::Failure, Outcome::Success] {
            health.heard(outcome);
        }
        (0..4).for_each(|_| health.heard(Outcome::Failure));
        assert!(!health.has(Objection::Ejected));
        health.heard(Outcome::Cancelled);
        health.heard(Outcome::Failure);
        assert!(health.has(Objection::Ejected));
        assert_eq!(health.cause(), EjectionCause::InARow);
    }
}
