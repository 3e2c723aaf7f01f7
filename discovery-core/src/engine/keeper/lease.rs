//! The lease of a handle: granted when first needed, renewed, audited, given up when nothing hangs on it (R8).

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::{Keeper, Slot, Wanted, unobserved};
use crate::engine::Backoff;
use crate::model::Key;
use crate::registry::RegistrationState;
use crate::store::{Audit, Lease, Owner, Renewal};
use crate::{Error, ErrorKind, Result};

/// Leases that were lost before this many others are not asked about.
const MAX_FORMER: usize = 8;

/// How soon an audit follows the removal of a record whose last write had no known outcome.
const AUDIT_SOON: Duration = Duration::from_secs(1);

/// What a store grants is a number of the store's: none would be renewed without a pause, and one of all time is no time.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// What the keeper holds of the store's leases.
pub(super) struct Holding {
    lease: Option<Lease>,
    /// Leases that were lost or given up, the newest first. A store that was restored knows them again, with what hung on them.
    former: Vec<Lease>,
    busy: bool,
    /// When the lease is renewed next, or granted next if there is none.
    next: Instant,
    audit_next: Instant,
    audit_busy: bool,
    /// Whether a write on the lease had no known outcome, so that something may hang on it of which nothing is known.
    doubtful: bool,
    /// When a lease that could not be revoked is revoked again.
    revoke_next: Instant,
    backoff: Backoff,
}

impl Holding {
    pub(super) fn new(backoff: Backoff) -> Self {
        let now = Instant::now();
        Self {
            lease: None,
            former: Vec::new(),
            busy: false,
            next: now,
            audit_next: now,
            audit_busy: false,
            doubtful: false,
            revoke_next: now,
            backoff,
        }
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    pub(super) fn former(&self) -> &[Lease] {
        &self.former
    }

    fn part_with_lease(&mut self) {
        let former = self.lease.take();
        self.former.splice(..0, former);
        self.former.truncate(MAX_FORMER);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lease.is_none() && !self.busy
    }

    /// Renews and audits at once: after a reconnect it has to be seen what survived (R5).
    pub(super) fn look_now(&mut self, now: Instant) {
        self.next = now;
        self.audit_next = now;
        self.backoff.reset();
    }

    /// Notes that a write had no known outcome. An audit soon finds what it left behind.
    pub(super) fn doubt(&mut self, now: Instant) {
        self.audit_next = self.audit_next.min(now + AUDIT_SOON);
        self.doubtful = true;
    }

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let renew = (!self.busy).then_some(self.next);
        let audit = (!self.audit_busy && self.lease.is_some()).then_some(self.audit_next);
        let revoke = self.lease.is_some().then_some(self.revoke_next);
        renew.into_iter().chain(audit).chain(revoke).filter(|at| *at > now).min()
    }
}

impl Keeper {
    /// Starts whatever the lease needs now.
    pub(super) fn tend_lease(&mut self) {
        let now = self.now;
        if self.holding.busy || !self.link.is_up() {
            return;
        }
        let Some(lease) = self.holding.lease.clone() else {
            if self.holding.next <= now && self.slots.values().any(Slot::is_present) {
                self.holding.busy = true;
                self.start_grant();
            }
            return;
        };
        if self.slots.is_empty() && self.running.is_empty() {
            if self.holding.revoke_next > now {
                return;
            }
            self.holding.part_with_lease();
            self.holding.busy = true;
            self.start_revoke(lease);
            return;
        }
        if self.holding.next <= now {
            self.holding.busy = true;
            // Whoever asks for an earlier one while this is under way, such as a new connection, is heard when it ends.
            self.holding.next = now + lease.ttl / 3;
            let written = self.keys(|slot| slot.is_present() && slot.claimed);
            self.start_renew(lease.clone(), written);
        }
        // Not beside a renewal: should that find the lease lost, everything is written on another one, and what an audit finds missing
        // meanwhile would be written twice (L2).
        if self.holding.audit_next <= now && !self.holding.audit_busy && !self.holding.busy {
            self.holding.audit_busy = true;
            self.holding.audit_next = now + lease.ttl;
            // A record is compared only if nothing about it is under way.
            let settled = self.keys(|slot| slot.is_present() && !slot.dirty && !slot.busy);
            self.start_audit(lease, settled);
        }
    }

    pub(super) fn keys(&self, wanted: impl Fn(&Slot) -> bool) -> Vec<Key> {
        self.slots.iter().filter(|(_, slot)| wanted(slot)).map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn revoked(&mut self, lease: Lease, result: Result<()>) {
        self.holding.busy = false;
        // Whoever registered meanwhile must not wait for the old lease's next renewal.
        self.holding.next = self.now;
        let Err(error) = result else { return };
        tracing::debug!(%error, "could not revoke the lease");
        // Where nothing hangs on it the store may let it expire.
        if error.is_retryable() && self.holding.doubtful {
            self.holding.former.retain(|former| former.id != lease.id);
            self.holding.lease = Some(lease);
            self.holding.revoke_next = self.now + self.holding.backoff.next(true);
        }
    }

    pub(super) fn granted(&mut self, result: Result<Lease>) {
        self.holding.busy = false;
        match result {
            Ok(mut lease) => {
                lease.ttl = lease.ttl.clamp(SHORTEST, LONGEST);
                self.holding.next = self.now + lease.ttl / 3;
                self.holding.audit_next = self.now + lease.ttl;
                self.holding.backoff.reset();
                self.holding.lease = Some(lease);
                self.holding.doubtful = false;
                for key in self.keys(|slot| slot.is_present() && slot.dirty) {
                    self.schedule(&key, self.now);
                }
            }
            Err(error) => {
                self.holding.next = self.now + self.holding.backoff.next(error.is_retryable());
                for key in self.keys(Slot::is_present) {
                    self.unreachable(&key, &error);
                }
            }
        }
    }

    pub(super) fn renewed(&mut self, lease: &Lease, result: Result<Renewal>) {
        self.holding.busy = false;
        if self.holding.lease.as_ref().is_none_or(|held| held.id != lease.id) {
            return; // It was lost while the answer was under way, and another one is due.
        }
        match result {
            Ok(Renewal::Held(ttl)) => {
                self.holding.backoff.reset();
                self.holding.next = self.now + ttl.clamp(SHORTEST, LONGEST) / 3;
                self.hold_all_but(&HashSet::new());
            }
            Ok(Renewal::Partly { ttl, failed, cause }) => {
                let wait = self.holding.backoff.next(cause.is_retryable()).min(ttl.max(SHORTEST) / 6);
                self.holding.next = self.now + wait;
                let failed: HashSet<_> = failed.into_iter().collect();
                self.hold_all_but(&failed);
                for slot in failed.iter().filter_map(|key| self.slots.get(key)).filter(|slot| slot.is_present()) {
                    slot.set_reconnecting(&cause);
                }
            }
            Ok(Renewal::Lost) => self.lease_lost(lease),
            Err(error) => {
                // A third of the TTL was spent waiting for this renewal, so the next must come soon.
                let wait = self.holding.backoff.next(error.is_retryable()).min(lease.ttl / 6);
                self.holding.next = self.holding.next.min(self.now + wait);
                for slot in self.slots.values().filter(|slot| slot.is_present()) {
                    slot.set_reconnecting(&error);
                }
            }
        }
    }

    /// Says of the records that were renewed that they stand.
    fn hold_all_but(&self, failed: &HashSet<Key>) {
        let stands = |slot: &Slot| slot.is_present() && !slot.dirty && !slot.state.borrow().is_registered();
        for (_, slot) in self.slots.iter().filter(|(key, slot)| stands(slot) && !failed.contains(key)) {
            slot.set_state(RegistrationState::Registered);
        }
    }

    /// Everything that hung on the lease is gone: what is wanted is written anew, on a new lease.
    pub(super) fn lease_lost(&mut self, lost: &Lease) {
        if self.holding.lease.as_ref().is_none_or(|lease| lease.id != lost.id) {
            return;
        }
        tracing::warn!(lease = lost.id, store = %self.link.store.address(), "the lease was lost; registering anew");
        self.holding.part_with_lease();
        self.holding.next = self.now;
        let error = Error::new(ErrorKind::Unavailable, "keep", "lease", "the store no longer knows the lease");
        // The grant of the next one makes them due.
        for slot in self.slots.values_mut().filter(|slot| slot.is_present()) {
            slot.dirty = true;
            slot.set_reconnecting(&error);
        }
    }

    pub(super) fn audited(&mut self, lease: &Lease, result: Result<Audit>) {
        self.holding.audit_busy = false;
        let audit = match result {
            Ok(audit) if self.holding.lease.as_ref() == Some(lease) => audit,
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(%error, "could not audit the lease");
                return;
            }
        };
        // What changed while the audit was under way is looked after already.
        let settled = |slot: &Slot| slot.is_present() && !slot.dirty && !slot.busy;
        let missing: HashSet<_> =
            audit.missing.into_iter().filter(|key| self.slots.get(key).is_some_and(settled)).collect();
        // One line stands for all, since a store that was emptied misses everything at once (L1).
        if let Some(key) = missing.iter().next() {
            let records = missing.len();
            tracing::warn!(%key, records, "records are no longer in the store as they were written; repairing them");
        }
        for key in missing {
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            slot.dirty = true;
            slot.set_reconnecting(&Error::new(
                ErrorKind::Unavailable,
                "keep",
                key.to_string(),
                "the record was deleted or overwritten by somebody else",
            ));
            self.schedule(&key, self.now);
        }
        for key in audit.orphans {
            if self.slots.contains_key(&key) {
                continue;
            }
            tracing::debug!(%key, "a write that came late left a record behind; removing it");
            let mut slot = Slot::new(0, unobserved(), Backoff::new(self.link.policy.backoff));
            slot.want(Wanted::Absent, None);
            slot.owner = Some(Owner { lease: lease.clone(), mark: "".into() });
            self.slots.insert(key.clone(), slot);
            self.schedule(&key, self.now);
        }
    }
}
