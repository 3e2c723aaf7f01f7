//! A schedule: what users do and what goes wrong, each at its time.

use std::time::Duration;

use super::lies::{Denial, Lag, Lossy, Wire};
use crate::Policy;

/// Something that a user, an operator or fate does.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// A process starts: the next client.
    Open,
    /// A client closes its handle.
    Close(usize),
    /// A client's process is killed.
    Kill(usize),
    /// A client registers an instance of a service; an id that is registered is taken over.
    Register(usize, &'static str, &'static str),
    /// It changes its registration.
    Update(usize, &'static str, &'static str),
    /// It deregisters.
    Deregister(usize, &'static str, &'static str),
    /// It drops its registration.
    Drop(usize, &'static str, &'static str),
    /// It watches a service.
    Watch(usize, &'static str),
    /// It watches the names of services.
    WatchNames(usize),
    /// It drops its watch.
    Unwatch(usize, &'static str),
    /// A client's connections behave so from now on.
    Wire(usize, Wire),
    /// The connection in use breaks.
    Cut(usize),
    /// The connection in use falls silent for ever; new ones work.
    Freeze(usize),
    /// The chance in percent that a request fails, with or without effect, or takes long.
    Flaky(usize, u8),
    /// What happens to notifications.
    Lossy(usize, Lossy),
    /// From when reads are answered.
    Lag(usize, Option<Lag>),
    /// What is refused.
    Deny(usize, Denial),
    /// Leases are kept for longer than granted.
    ExpireLate(Duration),
    /// A client's lease ends before its time.
    ExpireEarly(usize),
    /// Every subscription ends since what it would go on from is gone.
    Compact,
    /// The store restarts with what it had.
    Restart,
    /// The store restarts without its data; revisions begin anew, or far ahead if `true`.
    RestartEmpty(bool),
    /// The store restarts with what it had so long ago.
    Restore(Duration),
    /// An old backup is restored behind a proxy that keeps everybody's connections open.
    RestoreBehindProxy(Duration),
    /// An operator writes a record by hand.
    Put(&'static str, &'static str),
    /// An operator writes something that nobody can read.
    Spoil(&'static str, &'static str),
    /// An operator deletes a record.
    Delete(&'static str, &'static str),
}

/// A schedule, with the policy of all its clients.
#[derive(Debug, Clone)]
pub struct Schedule {
    pub(super) seed: u64,
    pub(super) policy: Policy,
    pub(super) steps: Vec<(Duration, Step)>,
    pub(super) calm: Duration,
}

impl Schedule {
    /// Makes an empty schedule; faults end at its last step.
    pub fn new(seed: u64, policy: Policy) -> Self {
        Self { seed, policy, steps: Vec::new(), calm: Duration::ZERO }
    }

    /// Adds a step at a time.
    #[must_use]
    pub fn at(mut self, at: Duration, step: Step) -> Self {
        self.calm = self.calm.max(at);
        self.steps.push((at, step));
        self
    }

    /// How long after the last fault everything has to be as the store is.
    ///
    /// A connection is noticed to be dead and replaced; leases that nobody renews end; records are found missing by an audit and
    /// written anew; a difference is found by the second reconciliation at the latest, since the first may have begun before; the set is read
    /// anew, which may stand still for ten deadlines before it is begun again, and what the brake holds it holds for three graces at most.
    /// Each may wait for a backoff.
    pub fn settles_within(&self) -> Duration {
        let Policy { ttl, timeout, connect_timeout, backoff, probe, reconcile, .. } = self.policy;
        let settle = Duration::from_secs(1);
        let connected = probe + timeout + connect_timeout + backoff;
        let repaired = 2 * ttl + 2 * timeout + backoff;
        let found = 2 * (reconcile.mul_f64(1.25) + settle + timeout) + 3 * (2 * settle + timeout);
        let held = self.policy.hold().map_or(Duration::ZERO, |hold| 3 * hold.grace);
        let read = backoff + 10 * timeout + held;
        connected + repaired.max(found + read) + settle
    }
}
