//! The keeper: one task a handle that keeps registrations registered (R1–R12).
//!
//! Registrations say what they want, the store is driven towards it, and nothing else is remembered: a lost lease, a deleted key, an
//! outage and the first registration are one case, namely a slot whose record may not stand. Requests run concurrently, one for each key
//! at most; their answers come back into the same task, so no state is shared.

mod lease;
mod slot;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Duration, Instant, sleep_until};

use super::Backoff;
use super::link::{Link, LinkState};
use crate::model::{Key, encode};
use crate::registry::{Command, RegistrationState};
use crate::{Error, Result};
use lease::Holding;
use slot::{Slot, Wanted, superseded};
use work::Done;

/// Requests under way at once; more would only queue at the store and time out there.
const MAX_RUNNING: usize = 64;
/// How long the last removals may take once nobody holds a handle any more (R10).
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(super) struct Keeper {
    link: Arc<Link>,
    commands: mpsc::UnboundedReceiver<Command>,
    slots: BTreeMap<Key, Slot>,
    /// When each slot that needs work is worked on next; at most one entry a slot.
    due: BTreeSet<(Instant, Key)>,
    /// The time of this pass of the loop, and then of what ended its wait: a backoff that counted from before the wait would be over already.
    /// Everything goes by it: what is due by one clock and not yet due by another would be neither started nor waited for.
    now: Instant,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    holding: Holding,
    closing: Option<Closing>,
}

struct Closing {
    /// Everybody who waits for the end.
    done: Vec<oneshot::Sender<Result<()>>>,
    /// When it ends at the latest, once nobody holds a handle any more.
    until: Option<Instant>,
}

impl Keeper {
    pub(super) fn new(link: Arc<Link>, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        let holding = Holding::new(Backoff::new(link.policy.backoff));
        Self {
            link,
            commands,
            slots: BTreeMap::new(),
            due: BTreeSet::new(),
            now: Instant::now(),
            running: FuturesUnordered::new(),
            holding,
            closing: None,
        }
    }

    /// Works until the backend is closed or the last handle is gone.
    pub(super) async fn run(mut self) {
        let mut link = self.link.subscribe();
        let mut open = true;
        loop {
            self.now = Instant::now();
            self.start_work();
            if self.closing.is_some() && self.is_finished() {
                break;
            }
            let wake = self.next_wake();
            // The order is fixed so that a simulated run can be repeated. Nothing starves: what is under way is bounded, the link changes
            // seldom, and what is due is started in each pass.
            tokio::select! {
                biased;
                Some(done) = self.running.next(), if !self.running.is_empty() => self.settle(done),
                changed = link.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let state = link.borrow_and_update().clone();
                    self.on_link(&state);
                }
                command = self.commands.recv(), if open => match command {
                    Some(command) => self.obey(command),
                    None => {
                        open = false;
                        self.close(None, Some(self.now + LAST_WORDS));
                    }
                },
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
        for done in self.closing.into_iter().flat_map(|closing| closing.done) {
            let _ = done.send(Ok(()));
        }
    }

    fn obey(&mut self, command: Command) {
        self.now = Instant::now();
        match command {
            Command::Register { key, done, .. } if self.closing.is_some() => {
                let _ = done.send(Err(Error::closed("register", key.to_string())));
            }
            Command::Register { key, serial, instance, state, done } => {
                let backoff = Backoff::new(self.link.policy.backoff);
                let slot = self.slots.entry(key.clone()).or_insert_with(|| Slot::new(serial, state.clone(), backoff));
                if slot.serial != serial {
                    slot.hand_over(serial, state);
                }
                slot.want(Wanted::Present(encode(&instance).into()), Some(done));
                self.schedule(&key, self.now);
                if let Some(cause) = self.link.trouble() {
                    self.unreachable(&key, &cause);
                }
            }
            Command::Update { key, serial, instance, done } => match self.slots.get_mut(&key) {
                Some(slot) if slot.serial == serial && slot.is_present() => {
                    slot.want(Wanted::Present(encode(&instance).into()), Some(done));
                    self.schedule(&key, self.now);
                }
                Some(slot) if slot.serial != serial => {
                    let _ = done.send(Err(superseded(&None)));
                }
                _ => {
                    let _ = done.send(Err(ended(&key)));
                }
            },
            Command::Remove { key, serial, done } => match self.slots.get_mut(&key) {
                Some(slot) if slot.serial == serial => {
                    if slot.is_present() {
                        slot.want(Wanted::Absent, done);
                    } else {
                        slot.wait(done);
                        slot.backoff.reset();
                    }
                    if slot.owner.is_none() && !slot.busy {
                        return self.finish(&key, Ok(())); // Nothing was ever sent, so no store has to be asked.
                    }
                    self.schedule(&key, self.now);
                }
                // Gone already, or a newer owner's.
                _ => {
                    let _ = done.map(|done| done.send(Ok(())));
                }
            },
            Command::Close { done } => self.close(Some(done), None),
        }
    }

    fn close(&mut self, done: Option<oneshot::Sender<Result<()>>>, until: Option<Instant>) {
        let closing = self.closing.get_or_insert_with(|| Closing { done: Vec::new(), until: None });
        closing.done.extend(done);
        closing.until = until.or(closing.until);
        for key in self.slots.keys().cloned().collect::<Vec<_>>() {
            if let Some(slot) = self.slots.get_mut(&key).filter(|slot| slot.is_present()) {
                slot.want(Wanted::Absent, None);
            }
            self.schedule(&key, self.now);
        }
    }

    /// Has a slot worked on at a time, or earlier if that was planned already.
    fn schedule(&mut self, key: &Key, at: Instant) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let at = slot.due.map_or(at, |planned| planned.min(at));
        if let Some(planned) = slot.due.replace(at) {
            self.due.remove(&(planned, key.clone()));
        }
        self.due.insert((at, key.clone()));
    }

    fn is_finished(&self) -> bool {
        let out_of_time = self.closing.as_ref().and_then(|c| c.until).is_some_and(|until| self.now >= until);
        out_of_time || (self.slots.is_empty() && self.running.is_empty() && self.holding.is_empty())
    }

    fn on_link(&mut self, state: &LinkState) {
        self.now = Instant::now();
        match state {
            LinkState::Up(_) => self.holding.look_now(self.now),
            LinkState::Down(_, cause) => {
                let Some(cause) = cause else { return };
                for key in self.keys(Slot::is_present) {
                    self.unreachable(&key, cause);
                }
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let closing = self.closing.as_ref().and_then(|closing| closing.until);
        if !self.link.is_up() {
            return closing;
        }
        // What is due already waits for an answer that wakes the loop.
        let work = self.due.iter().map(|(at, _)| *at).find(|at| *at > self.now);
        [closing, work, self.holding.next_wake(self.now)].into_iter().flatten().min()
    }

    /// Says of a fresh registration that it stands, or of a removed one that it is over.
    fn finish(&mut self, key: &Key, result: Result<()>) {
        if let Some(mut slot) = self.slots.remove(key) {
            let version = slot.version;
            slot.set_state(match &result {
                Err(error) if error.kind() == crate::ErrorKind::Superseded => RegistrationState::Superseded,
                _ => RegistrationState::Closed,
            });
            slot.answer(version, &result);
        }
    }
}

/// The answer to an update of what is no longer there.
pub(crate) fn ended(key: &Key) -> Error {
    let why = "the registration has ended: it was deregistered or superseded";
    Error::new(crate::ErrorKind::Closed, "update", key.to_string(), why)
}

/// A state that nobody watches, for slots that no registration owns.
fn unobserved() -> watch::Sender<RegistrationState> {
    watch::Sender::new(RegistrationState::Closed)
}
