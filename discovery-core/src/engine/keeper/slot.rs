//! A slot: what one key should be in the store, and what is known of what it is.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::super::Backoff;
use crate::registry::RegistrationState;
use crate::snapshot::Since;
use crate::store::{Lease, Owner};
use crate::{Error, Result};

/// What the store should have under the key.
#[derive(Debug, Clone)]
pub(super) enum Wanted {
    Present(Arc<[u8]>),
    Absent,
}

/// What the keeper knows of one key. At most one request for a key is under way, so two writes of it never overtake each other.
pub(super) struct Slot {
    /// The registration that owns the slot now; words of an earlier one are ignored (R6).
    pub(super) serial: u64,
    pub(super) wanted: Wanted,
    /// Rises whenever `wanted` changes, so that an answer to an older write is not taken for the newest.
    pub(super) version: u64,
    /// Whether the store may differ from `wanted`.
    pub(super) dirty: bool,
    pub(super) busy: bool,
    /// When it is worked on next, if that is planned; written by the keeper's `schedule` and by the start of the work.
    pub(super) due: Option<Instant>,
    /// Whether a write may have reached the store although no answer came.
    pub(super) uncertain: bool,
    /// The oldest version of which a write has no known outcome, and until when such a write may arrive behind later ones.
    pub(super) unknown: Option<(u64, Instant)>,
    /// When the record is written once more, since an older version may stand there by then.
    pub(super) again: Option<Instant>,
    /// Who wrote what stands there, as far as this process knows; kept when the outcome of a write is unknown.
    pub(super) owner: Option<Owner>,
    /// The owner on a former lease of the handle that the next write names instead of `owner`.
    pub(super) naming: Option<Owner>,
    /// A lease on which a takeover was sent whose outcome is unknown: should it arrive late, it takes the record from this process itself.
    pub(super) takeover: Option<Lease>,
    /// Whether this registration wrote once: from then on it yields to a newer owner, before that it takes over.
    pub(super) claimed: bool,
    pub(super) backoff: Backoff,
    pub(super) state: watch::Sender<RegistrationState>,
    waiters: Vec<(u64, oneshot::Sender<Result<()>>)>,
}

impl Slot {
    pub(super) fn new(serial: u64, state: watch::Sender<RegistrationState>, backoff: Backoff) -> Self {
        Self {
            serial,
            wanted: Wanted::Absent,
            version: 0,
            dirty: true,
            busy: false,
            due: None,
            uncertain: false,
            unknown: None,
            again: None,
            owner: None,
            naming: None,
            takeover: None,
            claimed: false,
            backoff,
            state,
            waiters: Vec::new(),
        }
    }

    /// Sets what is wanted; `done` hears when it is so.
    pub(super) fn want(&mut self, wanted: Wanted, done: Option<oneshot::Sender<Result<()>>>) {
        if matches!(wanted, Wanted::Absent) {
            // Whoever waits for the record to stand must not take its removal for that.
            for (_, done) in self.waiters.drain(..) {
                let _ = done.send(Err(Error::closed("register", "the instance")));
            }
        }
        self.wanted = wanted;
        self.version += 1;
        self.dirty = true;
        self.backoff.reset();
        self.wait(done);
    }

    /// Waits for what is wanted already.
    pub(super) fn wait(&mut self, done: Option<oneshot::Sender<Result<()>>>) {
        // Callers give up; what they left behind must not pile up during an outage.
        self.waiters.retain(|(_, done)| !done.is_closed());
        self.waiters.extend(done.map(|done| (self.version, done)));
    }

    /// Notes that the record is written on another lease than before.
    pub(super) fn change_lease(&mut self, lease: &Lease) {
        self.owner = Some(Owner { lease: lease.clone(), mark: "".into() });
        self.naming = None;
    }

    /// Notes that a write on the lease succeeded.
    pub(super) fn stands(&mut self, owner: Owner) {
        self.owner = Some(owner);
        self.naming = None;
    }

    /// Has the next write name the owner on that lease, if it is a former one of the handle's: then what holds the record is no newer owner
    /// but this process itself, on a lease that it lost and that a restored store brought back. Where nobody holds the record that was taken,
    /// it was a late takeover of this process itself, if there was one. `false` if it is neither, or was named in vain.
    pub(super) fn name_former(&mut self, former: &[Lease], by: Option<u64>) -> bool {
        if !self.claimed || !self.is_present() {
            return false;
        }
        let lease = match by {
            Some(by) => former.iter().find(|lease| lease.id == by).cloned(),
            None => self.takeover.take(),
        };
        let next = lease.map(|lease| Owner { lease, mark: "".into() });
        let is_new = next.is_some() && next != self.naming;
        self.naming = next;
        is_new
    }

    /// Gives the slot to a new registration, and returns the waiters of the former one.
    pub(super) fn hand_over(&mut self, serial: u64, state: watch::Sender<RegistrationState>) {
        let removing = matches!(self.wanted, Wanted::Absent);
        self.set_state(if removing { RegistrationState::Closed } else { RegistrationState::Superseded });
        for (_, done) in self.waiters.drain(..) {
            // Whoever waited for a removal has what was wanted: the record is a newer owner's.
            let _ = done.send(if removing { Ok(()) } else { Err(superseded(&self.owner)) });
        }
        self.serial = serial;
        self.state = state;
        // What the former registration wrote may stand, and is removed should this one be refused.
        self.uncertain |= self.claimed;
        self.claimed = false;
        self.naming = None;
    }

    /// Answers everybody who waits for `version` or an earlier one.
    pub(super) fn answer(&mut self, version: u64, result: &Result<()>) {
        for (wanted, done) in std::mem::take(&mut self.waiters) {
            if wanted <= version {
                // An error means that the caller stopped waiting.
                let _ = done.send(result.clone());
            } else {
                self.waiters.push((wanted, done));
            }
        }
    }

    pub(super) fn is_present(&self) -> bool {
        matches!(self.wanted, Wanted::Present(_))
    }

    pub(super) fn set_state(&self, next: RegistrationState) {
        self.state.send_replace(next);
    }

    /// Says that the record may not stand, keeping since when.
    pub(super) fn set_reconnecting(&self, cause: &Error) {
        self.state.send_modify(|state| {
            let since = match state {
                RegistrationState::Reconnecting(since, _) => *since,
                _ => Since::now(),
            };
            *state = RegistrationState::Reconnecting(since, cause.clone());
        });
    }
}

pub(super) fn superseded(owner: &Option<Owner>) -> Error {
    let lease =
        owner.as_ref().map_or(String::new(), |owner| format!(" (this one wrote on lease {:x})", owner.lease.id));
    Error::new(
        crate::ErrorKind::Superseded,
        "keep",
        "registration",
        format!("a newer owner registered the same id{lease}; register anew to take it back"),
    )
}
