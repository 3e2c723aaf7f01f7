//! A registration on several sides: one task that hears the handle, drives the sides, and says how they are together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Duration, Instant, sleep_until};

use super::side::{End, Report, Side, Wanted, Wish};
use super::{Core, named};
use crate::model::Key;
use crate::registry::{Backend, RegistrationState};
use crate::snapshot::Since;
use crate::{Error, ErrorKind, Instance, Result};

/// The registrations of a handle.
pub(super) type Joints = Arc<Mutex<HashMap<Key, Joint>>>;

type Done = oneshot::Sender<Result<()>>;

/// Where a registration is reached.
pub(super) struct Joint {
    serial: u64,
    words: mpsc::UnboundedSender<Word>,
    state: watch::Receiver<RegistrationState>,
    /// Which sides do not have the record as it is wanted, and why.
    lacking: watch::Receiver<Option<Error>>,
}

/// What its task is told.
enum Word {
    Update(Instance, Done),
    /// With whom to tell; nobody waits for what is dropped.
    Remove(Option<Done>),
    /// It was registered anew on the same handle.
    Superseded,
}

impl Joint {
    pub(super) fn start(
        core: &Core,
        sides: Vec<Arc<dyn Backend>>,
        (key, serial): (Key, u64),
        instance: Instance,
        (state, done): (watch::Sender<RegistrationState>, Done),
    ) -> Self {
        let (words, inbox) = mpsc::unbounded_channel();
        let (lacking_tx, lacking) = watch::channel(None);
        let joint = Self { serial, words, state: state.subscribe(), lacking };
        let reports = Arc::new(watch::Sender::new(vec![Report::default(); sides.len()]));
        let patience = core.options.patience;
        let task = Task {
            key: key.clone(),
            addresses: sides.iter().map(|side| side.address()).collect(),
            patience,
            wish: watch::Sender::new(Wish { wanted: Wanted::Present(instance), version: 1 }),
            wished_at: Instant::now(),
            state,
            lacking: lacking_tx,
            reports: reports.subscribe(),
            first: true,
            waiters: vec![Waiter { version: 1, done, since: None }],
            removals: Vec::new(),
        };
        let sides = sides.into_iter().enumerate().map(|(at, backend)| {
            let (wish, reports) = (task.wish.subscribe(), reports.clone());
            Side { at, backend, wish, reports, patience }.tend()
        });
        let (sides, joints) = (join_all(sides.collect::<Vec<_>>()), core.joints.clone());
        core.runtime.spawn(async move {
            task.run(inbox, sides).await;
            let mut joints = joints.lock().unwrap_or_else(PoisonError::into_inner);
            if joints.get(&key).is_some_and(|joint| joint.serial == serial) {
                joints.remove(&key);
            }
        });
        joint
    }

    pub(super) fn update(&self, serial: u64, instance: Instance, done: Done) {
        if serial != self.serial {
            // An error means that the caller stopped waiting, here and below.
            let _ = done.send(Err(superseded("this handle")));
        } else if let Err(mpsc::error::SendError(Word::Update(instance, done))) =
            self.words.send(Word::Update(instance, done))
        {
            let _ = done.send(Err(crate::engine::ended(&instance.key())));
        }
    }

    pub(super) fn remove(&self, serial: u64, done: Option<Done>) {
        let late = if serial == self.serial {
            self.words.send(Word::Remove(done)).err().map(|late| late.0)
        } else {
            Some(Word::Remove(done))
        };
        // It is gone already, or a newer one's.
        if let Some(Word::Remove(Some(done))) = late {
            let _ = done.send(Ok(()));
        }
    }

    /// Says that the same instance was registered anew on the handle.
    pub(super) fn supersede(&self) {
        // A task that has ended holds nothing.
        let _ = self.words.send(Word::Superseded);
    }

    /// Has it deregistered, and answers where its end will be seen.
    pub(super) fn leave(&self) -> watch::Receiver<RegistrationState> {
        self.remove(self.serial, Some(oneshot::channel().0));
        self.state.clone()
    }

    pub(super) fn trouble(&self) -> Option<Error> {
        self.lacking.borrow().clone()
    }
}

/// Somebody who waits until the sides have a version.
struct Waiter {
    version: u64,
    done: Done,
    /// When the first side had it.
    since: Option<Instant>,
}

struct Task {
    key: Key,
    addresses: Vec<String>,
    patience: Duration,
    wish: watch::Sender<Wish>,
    wished_at: Instant,
    state: watch::Sender<RegistrationState>,
    lacking: watch::Sender<Option<Error>>,
    reports: watch::Receiver<Vec<Report>>,
    /// Whether the first registration is not confirmed yet.
    first: bool,
    waiters: Vec<Waiter>,
    removals: Vec<Done>,
}

/// Whether the task goes on, and when at the latest it looks again.
enum Next {
    Wait(Option<Instant>),
    Over(RegistrationState),
}

impl Task {
    /// Works until the registration is over. Whatever the sides hold then is withdrawn with them.
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Word>, sides: impl Future<Output = Vec<()>>) {
        let (mut ended, mut open) = (false, true);
        tokio::pin!(sides);
        let end = loop {
            let again = match self.settle(ended) {
                Next::Wait(again) => again,
                Next::Over(end) => break end,
            };
            tokio::select! {
                biased;
                word = inbox.recv(), if open => match word {
                    Some(Word::Update(instance, done)) => self.update(instance, done),
                    Some(Word::Remove(Some(done))) => self.remove(done),
                    Some(Word::Superseded) => self.give_up("this handle"),
                    // The handle is gone.
                    Some(Word::Remove(None)) => break RegistrationState::Closed,
                    // A newer one is in its place, which was the last word.
                    None => open = false,
                },
                changed = self.reports.changed(), if !ended => ended = changed.is_err(),
                _ = &mut sides, if !ended => ended = true,
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
            }
        };
        self.state.send_replace(end);
        for done in self.removals {
            let _ = done.send(Ok(()));
        }
        for waiter in self.waiters {
            let _ = waiter.done.send(Err(Error::closed("register", self.key.to_string())));
        }
    }

    fn wanted(&self) -> Wanted {
        self.wish.borrow().wanted.clone()
    }

    fn want(&mut self, wanted: Wanted) -> u64 {
        self.wished_at = Instant::now();
        self.wish.send_modify(|wish| *wish = Wish { wanted, version: wish.version + 1 });
        self.wish.borrow().version
    }

    fn update(&mut self, instance: Instance, done: Done) {
        match self.wanted() {
            Wanted::Present(_) => {
                let version = self.want(Wanted::Present(instance));
                // Callers give up; what they left behind must not pile up during an outage.
                self.waiters.retain(|waiter| !waiter.done.is_closed());
                self.waiters.push(Waiter { version, done, since: None });
            }
            Wanted::Left => _ = done.send(Err(superseded("another side"))),
            Wanted::Gone => _ = done.send(Err(crate::engine::ended(&self.key))),
        }
    }

    fn remove(&mut self, done: Done) {
        self.removals.retain(|done| !done.is_closed());
        match self.wanted() {
            // The record is a newer owner's, so it is not this one's.
            Wanted::Left => _ = done.send(Ok(())),
            Wanted::Gone => {
                // Sides that wait after a refusal try again.
                self.want(Wanted::Gone);
                self.removals.push(done);
            }
            Wanted::Present(_) => {
                self.want(Wanted::Gone);
                self.removals.push(done);
                // Whoever waits for the record to stand must not take its removal for that.
                for waiter in self.waiters.drain(..) {
                    let _ = waiter.done.send(Err(Error::closed("register", self.key.to_string())));
                }
            }
        }
    }

    /// Leaves the record to a newer owner.
    fn give_up(&mut self, whom: &str) {
        if let Wanted::Present(_) = self.wanted() {
            self.want(Wanted::Left);
            self.state.send_replace(RegistrationState::Superseded);
            for waiter in self.waiters.drain(..) {
                let _ = waiter.done.send(Err(superseded(whom)));
            }
        }
    }

    /// Says what follows from the sides' reports.
    fn settle(&mut self, ended: bool) -> Next {
        let reports = self.reports.borrow_and_update().clone();
        if let Some(at) = reports.iter().position(|report| report.end == Some(End::Superseded)) {
            let whom = self.addresses[at].clone();
            self.give_up(&whom);
        }
        let over = ended || reports.iter().all(|report| report.end.is_some());
        let taking = || self.addresses.iter().zip(&reports).filter(|(_, report)| report.end.is_none());
        let Wish { wanted, version } = self.wish.borrow().clone();
        match wanted {
            Wanted::Left if over => return Next::Over(RegistrationState::Superseded),
            Wanted::Present(_) | Wanted::Gone if over => return Next::Over(RegistrationState::Closed),
            Wanted::Left => return Next::Wait(None),
            Wanted::Gone => {
                let causes = taking().map(|(address, report)| (&**address, report.cause.as_ref()));
                self.lacking.send_replace(named("deregister", &self.key.to_string(), causes));
                return Next::Wait(None);
            }
            Wanted::Present(_) => {}
        }
        let lacks = |report: &Report| !report.holds || report.confirmed < version;
        let lacking = taking().filter(|(_, report)| lacks(report));
        let named_lacking =
            named("keep", &self.key.to_string(), lacking.map(|(address, report)| (&**address, report.cause.as_ref())));
        let troubled = taking().any(|(_, report)| !report.holds || report.cause.is_some());
        let (answers, again) = self.answers(&reports);
        let failed = answers.iter().any(|(_, answer)| answer.is_err());
        if self.first && failed {
            // A first registration that one side refuses is over on all (R1).
            self.state.send_replace(RegistrationState::Closed);
            answers.into_iter().for_each(|(done, answer)| _ = done.send(answer));
            return Next::Over(RegistrationState::Closed);
        }
        self.first &= answers.is_empty();
        // An update under way is no trouble, unless it takes long.
        let slow = self.wished_at + self.patience;
        let pending = named_lacking.is_some() && !troubled && Instant::now() < slow;
        self.lacking.send_replace(named_lacking.clone());
        match named_lacking {
            _ if self.first && !troubled => {}
            None => self.set_state(None),
            Some(error) if !pending => self.set_state(Some(error)),
            Some(_) => {}
        }
        // The state comes first: whoever hears the answer may look at it at once.
        answers.into_iter().for_each(|(done, answer)| _ = done.send(answer));
        Next::Wait(again.into_iter().chain(pending.then_some(slow)).min())
    }

    /// Takes out the waiters that have an answer now; and when another one has.
    fn answers(&mut self, reports: &[Report]) -> (Vec<(Done, Result<()>)>, Option<Instant>) {
        let (now, mut answers, mut again) = (Instant::now(), Vec::new(), None::<Instant>);
        for mut waiter in std::mem::take(&mut self.waiters) {
            let sides = || self.addresses.iter().zip(reports).filter(|(_, report)| report.end.is_none());
            let refused = sides().find(|(_, report)| report.refused >= Some(waiter.version));
            let mut has = sides().map(|(_, report)| report.confirmed >= waiter.version);
            let (all, any) = (has.clone().all(|has| has), has.any(|has| has));
            let since = any.then(|| *waiter.since.get_or_insert(now));
            if let Some((address, report)) = refused {
                let side = std::iter::once((&**address, report.cause.as_ref()));
                let operation = if waiter.version == 1 { "register" } else { "update" };
                let error = named(operation, &self.key.to_string(), side);
                answers.push((waiter.done, error.map_or(Ok(()), Err)));
            } else if all || since.is_some_and(|since| since + self.patience <= now) {
                answers.push((waiter.done, Ok(())));
            } else {
                let at = since.map(|since| since + self.patience);
                again = again.into_iter().chain(at).min();
                self.waiters.push(waiter);
            }
        }
        (answers, again)
    }

    /// Says that the record stands everywhere, or where not; a cause that merely repeats is no news.
    fn set_state(&self, lacking: Option<Error>) {
        self.state.send_if_modified(|state| {
            let next = match (&*state, lacking) {
                (RegistrationState::Registered, None) => return false,
                (_, None) => RegistrationState::Registered,
                (RegistrationState::Reconnecting(_, old), Some(cause)) if old.message() == cause.message() => {
                    return false;
                }
                (RegistrationState::Reconnecting(since, _), Some(cause)) => {
                    RegistrationState::Reconnecting(*since, cause)
                }
                (_, Some(cause)) => RegistrationState::Reconnecting(Since::now(), cause),
            };
            *state = next;
            true
        });
    }
}

fn superseded(by: &str) -> Error {
    let why = format!("a newer owner registered the same id on {by}; register anew to take it back");
    Error::new(ErrorKind::Superseded, "keep", "registration", why)
}
