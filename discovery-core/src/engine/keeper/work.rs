//! The keeper's requests, and what their answers mean.

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::{Keeper, MAX_RUNNING, Wanted, superseded};
use crate::model::Key;
use crate::registry::RegistrationState;
use crate::store::{Audit, Lease, Renewal, Written};
use crate::{Error, ErrorKind, Result};

/// Whether a write that ended so may reach the store all the same, and later than others.
fn is_unknown(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DeadlineExceeded | ErrorKind::Unavailable)
}

/// The answer to a request.
pub(super) enum Done {
    Granted(Result<Lease>),
    Renewed(Lease, Result<Renewal>),
    Audited(Lease, Result<Audit>),
    Revoked(Lease, Result<()>),
    Written { key: Key, serial: u64, version: u64, lease: Lease, result: Result<Written> },
    Removed { key: Key, serial: u64, version: u64, result: Result<()> },
}

impl Keeper {
    /// Starts every request that is due.
    pub(super) fn start_work(&mut self) {
        self.tend_lease();
        if !self.link.is_up() {
            return;
        }
        while self.running.len() < MAX_RUNNING {
            let Some((at, key)) = self.due.pop_first() else { break };
            if at > self.now {
                self.due.insert((at, key));
                break;
            }
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            slot.due = None;
            if slot.busy {
                continue; // The answer under way makes it due again, if need be.
            }
            if !slot.dirty {
                match slot.again {
                    Some(at) if at > self.now => {
                        self.schedule(&key, at);
                        continue;
                    }
                    Some(_) => {}
                    None => continue,
                }
            }
            match slot.wanted.clone() {
                // Without a lease there is nothing to write on; the grant makes it due again.
                Wanted::Present(value) => {
                    if let Some(lease) = self.holding.lease().cloned() {
                        self.start_write(key, lease, value);
                    }
                }
                Wanted::Absent => self.start_remove(key),
            }
        }
        // The last removal may have made the lease superfluous.
        self.tend_lease();
    }

    pub(super) fn start_grant(&mut self) {
        let ttl = self.link.policy.ttl;
        self.start(move |link| async move {
            let request = link.store.grant(ttl);
            Done::Granted(link.call("open a lease on", || link.store.address(), request).await)
        });
    }

    pub(super) fn start_renew(&mut self, lease: Lease, held: Vec<Key>) {
        self.start(move |link| async move {
            let request = link.store.renew(&lease, &held);
            // A renewal that hangs must leave time for another one, on another connection.
            let limit = link.policy.timeout.min(lease.ttl / 6);
            let result = link.call_within(limit, "renew the lease on", || link.store.address(), request).await;
            Done::Renewed(lease, result)
        });
    }

    pub(super) fn start_audit(&mut self, lease: Lease, held: Vec<Key>) {
        self.start(move |link| async move {
            let request = link.store.audit(&lease, &held);
            let result = link.call("audit the lease on", || link.store.address(), request).await;
            Done::Audited(lease, result)
        });
    }

    pub(super) fn start_revoke(&mut self, lease: Lease) {
        self.start(move |link| async move {
            let request = link.store.revoke(&lease);
            let result = link.call("revoke the lease on", || link.store.address(), request).await;
            Done::Revoked(lease, result)
        });
    }

    fn start_write(&mut self, key: Key, lease: Lease, value: Arc<[u8]>) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        slot.busy = true;
        let owner = slot.owner.clone().filter(|_| slot.claimed);
        // Should the outcome stay unknown, this lease may own the record; an earlier one of ours was lost, or it would still be in use.
        if slot.owner.as_ref().is_none_or(|owner| owner.lease.id != lease.id) {
            slot.change_lease(&lease);
        }
        let previous = slot.naming.clone().or(owner);
        let (serial, version) = (slot.serial, slot.version);
        self.start(move |link| async move {
            let request = link.store.write(&lease, &key, &value, previous.as_ref());
            let result = link.call("register", || key.to_string(), request).await;
            Done::Written { key, serial, version, lease, result }
        });
    }

    fn start_remove(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        let Some(owner) = slot.owner.clone() else {
            return self.finish(&key, Ok(())); // Nothing was ever sent.
        };
        slot.busy = true;
        let (serial, version) = (slot.serial, slot.version);
        self.start(move |link| async move {
            let request = link.store.remove(&key, &owner);
            let result = link.call("deregister", || key.to_string(), request).await;
            Done::Removed { key, serial, version, result }
        });
    }

    fn start<F>(&mut self, request: impl FnOnce(Arc<super::Link>) -> F)
    where
        F: Future<Output = Done> + Send + 'static,
    {
        self.running.push(request(self.link.clone()).boxed());
    }

    pub(super) fn settle(&mut self, done: Done) {
        self.now = Instant::now();
        match done {
            Done::Granted(result) => self.granted(result),
            Done::Renewed(lease, result) => self.renewed(&lease, result),
            Done::Audited(lease, result) => self.audited(&lease, result),
            Done::Revoked(lease, result) => self.revoked(lease, result),
            Done::Written { key, serial, version, lease, result } => self.written(key, serial, version, &lease, result),
            Done::Removed { key, serial, version, result } => self.removed(key, serial, version, result),
        }
    }

    fn written(&mut self, key: Key, serial: u64, version: u64, lease: &Lease, result: Result<Written>) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        slot.busy = false;
        match &result {
            Ok(Written::Done(owner)) => slot.stands(owner.clone()),
            Err(error) if is_unknown(error) => {
                let earlier = slot.unknown.filter(|(_, until)| *until > self.now);
                slot.unknown = Some((earlier.map_or(version, |(earlier, _)| earlier), self.now + lease.ttl));
                if !slot.claimed {
                    slot.takeover = Some(lease.clone());
                }
            }
            _ => {}
        }
        if slot.serial != serial {
            // It was a former owner's write; the newer one's follows.
            self.schedule(&key, self.now);
            return;
        }
        match result {
            Ok(Written::Done(_)) => {
                slot.claimed = true;
                slot.uncertain = false;
                slot.backoff.reset();
                // What was written while the lease was lost hangs on one that nobody renews.
                let held = self.holding.lease().is_some_and(|held| held.id == lease.id);
                // The state comes first: whoever hears the answer may look at it at once.
                if slot.version == version {
                    slot.dirty = !held;
                    slot.set_state(RegistrationState::Registered);
                }
                slot.answer(version, &Ok(()));
                slot.unknown = slot.unknown.filter(|(_, until)| *until > self.now);
                slot.again = slot.unknown.filter(|(unknown, _)| *unknown < version).map(|(_, until)| until);
                let next = if slot.dirty { Some(self.now) } else { slot.again };
                if let Some(at) = next {
                    self.schedule(&key, at);
                }
            }
            Ok(Written::Superseded(by)) if slot.name_former(self.holding.former(), by) => self.schedule(&key, self.now),
            Ok(Written::Superseded(_)) => {
                tracing::warn!(%key, "a newer owner registered the same id; this registration ends");
                let error = superseded(&slot.owner);
                // Whoever wants the record gone has that already: it is not ours.
                let result = if slot.is_present() { Err(error) } else { Ok(()) };
                self.finish(&key, result);
            }
            Ok(Written::LeaseLost) => {
                slot.uncertain = false;
                self.schedule(&key, self.now);
                self.lease_lost(lease);
            }
            Err(error) => {
                if is_unknown(&error) {
                    slot.uncertain = true;
                    self.holding.doubt(self.now);
                }
                self.write_failed(&key, &error);
            }
        }
    }

    /// There is no connection, or no lease on it. Where nothing was sent for a slot, a first registration that cannot work, such as with a
    /// wrong password, is simply over.
    pub(super) fn unreachable(&mut self, key: &Key, error: &Error) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.set_reconnecting(error);
        if !error.is_retryable() {
            if !slot.claimed && !slot.uncertain {
                return self.finish(key, Err(error.clone()));
            }
            let version = slot.version;
            slot.answer(version, &Err(error.clone()));
        }
    }

    /// Decides whether a failed write is tried again.
    pub(super) fn write_failed(&mut self, key: &Key, error: &Error) {
        let Some(slot) = self.slots.get_mut(key) else {
            return;
        };
        if !error.is_retryable() {
            let version = slot.version;
            if slot.is_present() && !slot.claimed {
                // A first registration that cannot work is over (R1); what an earlier try may have left behind is removed.
                if !slot.uncertain {
                    return self.finish(key, Err(error.clone()));
                }
                slot.answer(version, &Err(error.clone()));
                slot.want(Wanted::Absent, None);
                return self.schedule(key, self.now);
            }
            slot.answer(version, &Err(error.clone()));
        }
        if slot.is_present() {
            slot.set_reconnecting(error);
        }
        let wait = slot.backoff.next(error.is_retryable());
        self.schedule(key, self.now + wait);
    }

    fn removed(&mut self, key: Key, serial: u64, version: u64, result: Result<()>) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        slot.busy = false;
        if slot.serial != serial || slot.version != version {
            return self.schedule(&key, self.now); // It was registered again meanwhile.
        }
        match result {
            Ok(()) => self.finish(&key, Ok(())),
            Err(error) => self.write_failed(&key, &error),
        }
    }
}
