//! A feed: one subscription to the store, shared by every watch of its scope (W7).

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Backoff;
use super::link::{Link, LinkState};
use super::model::Model;
use crate::snapshot::{Freshness, Since, View};
use crate::store::{RawChange, RawRecord, Scope, Sink};
use crate::{Error, ErrorKind};

/// How long notifications under way may take to arrive before a difference counts as one.
const SETTLE: Duration = Duration::from_secs(1);
/// How many times the deadline of a request a set that is being read may stand still. A part may take several requests.
const STANDSTILL: u32 = 5;
/// A first set that takes longer than this part of a request's deadline is taken from the disk meanwhile. A store that works has answered
/// many times over by then, and whoever waits for a set has not given up yet.
const PATIENCE: u32 = 3;
/// How soon at the earliest, and at the latest, a set that does not change is written to the disk again: it says when it was known good.
const CONFIRM: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10 * 60));
/// Counts in a row that differ until a removal counts as lost, whatever else arrives meanwhile.
const MISCOUNTS: u32 = 3;

pub(super) struct Feed<M: Model> {
    link: Arc<Link>,
    scope: Scope,
    state: Mutex<State<M>>,
    /// Holds the newest view only, so a slow reader costs nothing (W3).
    views: watch::Sender<Arc<M::View>>,
}

struct State<M> {
    model: M,
    freshness: Freshness,
    /// Whether the next full set is the first one of its subscription.
    gap: bool,
    /// How many parts of sets came.
    parts: u64,
    /// Held until the first full set of a subscription was read.
    turn: Option<OwnedSemaphorePermit>,
    /// The revision of the last full set, from which on reconciliation compares.
    read_at: u64,
    /// The fewest and the most records since reconciliation asked last.
    counts: (usize, usize),
}

impl<M: Model> State<M> {
    fn counted(&mut self) {
        let count = self.model.count();
        self.counts = (self.counts.0.min(count), self.counts.1.max(count));
    }
}

impl<M: Model> Feed<M> {
    pub(super) fn new(link: Arc<Link>, scope: Scope, model: M) -> (Self, watch::Receiver<Arc<M::View>>) {
        let freshness = Freshness::Loading(Since::now(), link.trouble());
        let (views, receiver) = watch::channel(model.view(&freshness));
        link.feeds.fetch_add(1, Ordering::Relaxed);
        let state = Mutex::new(State { model, freshness, gap: true, parts: 0, turn: None, read_at: 0, counts: (0, 0) });
        (Self { link, scope, state, views }, receiver)
    }

    /// Follows the store until it is aborted.
    pub(super) async fn run(self) {
        let remembered = self.recall().await;
        tokio::join!(self.follow_on(), self.fall_back(remembered));
    }

    /// Takes what the disk remembers, before the store's first answer is compared with it. Answers when that was known good.
    async fn recall(&self) -> Option<Since> {
        let cache = self.link.cache.as_ref()?;
        let (view, known_good) = cache.recall(&self.scope, self.link.policy.timeout).await?;
        self.lock().model.remember(view);
        Some(known_good)
    }

    /// Shows what the disk remembers, once the store is in trouble or has kept callers waiting.
    async fn fall_back(&self, remembered: Option<Since>) {
        let Some(known_good) = remembered else { return };
        let patience = self.link.policy.timeout / PATIENCE;
        let mut views = self.views.subscribe();
        // Why the wait ended shows below. The feed itself holds the sender.
        let _ = timeout(
            patience,
            views.wait_for(|view| view.freshness().since().is_none() || view.freshness().cause().is_some()),
        )
        .await;
        let mut state = self.lock();
        let Freshness::Loading(_, cause) = &state.freshness else { return };
        let cause = cause.clone().unwrap_or_else(|| {
            let why = format!("{} has not answered within {patience:?}", self.link.store.address());
            Error::new(ErrorKind::DeadlineExceeded, "read", format!("{:?}", self.scope), why)
        });
        if self.link.disk_log.permits() {
            tracing::warn!(
                scope = ?self.scope, known_good = ?known_good.elapsed(), %cause,
                "a set from the disk is served, and maybe others, until the registry answers"
            );
        }
        state.model.show_remembered();
        state.freshness = Freshness::Stale(known_good, cause);
        self.publish(&state);
    }

    /// Follows the store.
    async fn follow_on(&self) {
        let mut backoff = Backoff::new(self.link.policy.backoff);
        let mut rng = fastrand::Rng::new();
        let mut link = self.link.subscribe();
        loop {
            let epoch = self.wait_up(&mut link).await;
            let started = Instant::now();
            let error = tokio::select! {
                biased;
                error = self.follow() => error,
                cause = lost(&mut link, epoch) => {
                    self.give_up();
                    self.mark(&cause);
                    continue;
                }
                error = self.reconcile(&mut rng) => error,
                error = self.standstill() => error,
                never = self.keep_brake() => match never {},
                never = self.confirm() => match never {},
            };
            self.mark(&error);
            if error.is_retryable() && error.kind() != ErrorKind::Gap {
                self.link.suspect();
            }
            // A subscription that ends right after its first set would otherwise read the set in a tight loop.
            if started.elapsed() >= self.link.policy.probe {
                backoff.reset();
            }
            if self.link.broken_log.permits() {
                tracing::warn!(scope = ?self.scope, %error, "a subscription ended, and maybe others; sets are read anew");
            } else {
                tracing::debug!(scope = ?self.scope, %error, "a subscription ended; the set is read anew");
            }
            let wait = backoff.next(error.is_retryable());
            tokio::select! {
                biased;
                () = sleep(wait) => {}
                _ = lost(&mut link, epoch) => {}
            }
        }
    }

    async fn follow(&self) -> Error {
        let turn = self.link.loads.clone().acquire_owned().await;
        {
            let mut state = self.lock();
            state.gap = true;
            // The semaphore is never closed.
            state.turn = turn.ok();
        }
        let error = self.link.store.follow(&self.scope, self).await;
        self.give_up();
        error
    }

    /// Returns once a set that is being read stands still, as no request may hang for ever.
    async fn standstill(&self) -> Error {
        let patience = self.link.policy.timeout * STANDSTILL;
        let mut seen = None;
        loop {
            sleep(patience).await;
            let now = {
                let state = self.lock();
                match (state.gap, &state.turn) {
                    (false, _) => break,  // It was read.
                    (true, None) => None, // It is not its turn yet.
                    (true, Some(_)) => Some(state.parts),
                }
            };
            if now.is_some() && now == seen {
                let why = format!("nothing of the set came within {patience:?}");
                return Error::new(ErrorKind::DeadlineExceeded, "read", format!("{:?}", self.scope), why);
            }
            seen = now;
        }
        std::future::pending().await
    }

    /// Ends a subscription, whether or not its set was read to the end.
    fn give_up(&self) {
        let mut state = self.lock();
        state.turn = None;
        state.model.forget_parts();
    }

    /// Waits for the link, and says meanwhile why the set is not live.
    async fn wait_up(&self, link: &mut watch::Receiver<LinkState>) -> u64 {
        loop {
            match &*link.borrow_and_update() {
                LinkState::Up(epoch) => return *epoch,
                LinkState::Down(_, Some(cause)) => self.mark(cause),
                LinkState::Down(_, None) => {}
            }
            if link.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Marks the set as not live. A cause that merely repeats is no news for watchers.
    fn mark(&self, cause: &Error) {
        let mut state = self.lock();
        let next = match &state.freshness {
            Freshness::Loading(since, None) => Freshness::Loading(*since, Some(cause.clone())),
            Freshness::Live => Freshness::Stale(Since::now(), cause.clone()),
            Freshness::Loading(since, Some(old)) if differs(old, cause) => {
                Freshness::Loading(*since, Some(cause.clone()))
            }
            Freshness::Stale(since, old) if differs(old, cause) => Freshness::Stale(*since, cause.clone()),
            Freshness::Loading(..) | Freshness::Stale(..) => return,
        };
        state.freshness = next;
        self.publish(&state);
    }

    /// Returns once the store and the notifications led to different sets (W8).
    async fn reconcile(&self, rng: &mut fastrand::Rng) -> Error {
        // The changes up to here were compared already.
        let mut since = None;
        let mut miscounts = 0;
        loop {
            sleep(if miscounts == 0 { self.link.reconcile_pause(rng) } else { SETTLE }).await;
            let from = {
                let mut state = self.lock();
                if !state.freshness.is_live() {
                    continue;
                }
                let count = state.model.count();
                state.counts = (count, count);
                since.unwrap_or(state.read_at)
            };
            let request = self.link.store.digest(&self.scope, from);
            let digest = match self.link.call("reconcile", || format!("{:?}", self.scope), request).await {
                Ok(digest) => digest,
                // Nothing was learnt; the link looks after itself.
                Err(error) => {
                    tracing::debug!(scope = ?self.scope, %error, "could not reconcile");
                    continue;
                }
            };
            // What is under way has until then to arrive.
            sleep(SETTLE).await;
            let state = self.lock();
            // While records come and go, the store's count is one that this side had at some moment since it asked.
            let (fewest, most) = state.counts;
            miscounts = if (fewest..=most).contains(&digest.count) { 0 } else { miscounts + 1 };
            // A change that is known to the store and not to us was lost. A count that differs may be one of changes that arrived
            // together, but not again and again.
            if digest.revision < from || state.model.lacks(&digest.changed) || miscounts >= MISCOUNTS {
                return Error::new(
                    ErrorKind::Gap,
                    "follow",
                    format!("{:?}", self.scope),
                    "reconciliation found that the store and its notifications differ",
                );
            }
            since = Some(digest.revision);
        }
    }

    /// Lets the brake go when its grace has passed.
    async fn keep_brake(&self) -> Infallible {
        loop {
            // Only the store itself can say that the held did not come back; until it has, they stay.
            let at = {
                let state = self.lock();
                state.model.release_at().filter(|_| state.freshness.is_live())
            };
            match at {
                None => self.changed_release().await,
                Some(at) if at <= Instant::now() => {
                    let mut state = self.lock();
                    state.model.release();
                    self.publish(&state);
                }
                Some(at) => sleep_until(at).await,
            }
        }
    }

    /// Says from time to time that a set is still good, so that the disk does not take it for older than it is.
    async fn confirm(&self) -> Infallible {
        let Some(cache) = &self.link.cache else { return std::future::pending().await };
        loop {
            sleep((cache.max_age() / 4).clamp(CONFIRM.0, CONFIRM.1)).await;
            let view = self.views.borrow().clone();
            if view.freshness().is_live() {
                cache.keep(&self.scope, view);
            }
        }
    }

    async fn changed_release(&self) {
        let mut views = self.views.subscribe();
        // Every change of the brake is published, so the next view is the next time to look.
        let _ = views.changed().await;
    }

    fn publish(&self, state: &State<M>) {
        let view = state.model.view(&state.freshness);
        let before = self.views.send_replace(view.clone());
        let Some(cache) = &self.link.cache else { return };
        if view.freshness().is_live() {
            cache.keep(&self.scope, view);
        } else if before.freshness().is_live() {
            // It was good until this moment.
            cache.keep(&self.scope, before);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Model> Drop for Feed<M> {
    fn drop(&mut self) {
        self.link.feeds.fetch_sub(1, Ordering::Relaxed);
        let last = self.views.borrow().clone();
        if let Some(cache) = self.link.cache.as_ref().filter(|_| last.freshness().is_live()) {
            cache.keep(&self.scope, last);
        }
    }
}

impl<M: Model> Sink for Feed<M> {
    fn part(&self, records: Vec<RawRecord>) {
        let mut state = self.lock();
        state.parts += 1;
        state.model.part(records);
    }

    fn full(&self, revision: u64, since: Vec<RawChange>) {
        let mut state = self.lock();
        state.read_at = revision;
        let gap = std::mem::replace(&mut state.gap, false);
        state.turn = None;
        let changed = state.model.full(revision, since, gap);
        state.counted();
        if changed || !state.freshness.is_live() {
            state.freshness = Freshness::Live;
            self.publish(&state);
        }
    }

    fn changes(&self, revision: u64, changes: Vec<RawChange>) {
        let mut state = self.lock();
        let changed = state.model.changes(revision, changes);
        state.counted();
        if changed {
            self.publish(&state);
        }
    }
}

/// Returns the cause once the link is no longer the connection of `epoch`.
async fn lost(link: &mut watch::Receiver<LinkState>, epoch: u64) -> Error {
    loop {
        match &*link.borrow_and_update() {
            LinkState::Up(current) if *current == epoch => {}
            LinkState::Down(_, Some(cause)) => return cause.clone(),
            LinkState::Up(_) | LinkState::Down(_, None) => {
                return Error::new(ErrorKind::Unavailable, "follow", "registry", "the connection was replaced");
            }
        }
        if link.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn differs(a: &Error, b: &Error) -> bool {
    a.kind() != b.kind() || a.message() != b.message()
}
