//! The link to the store: one supervisor that connects, probes and reconnects for everybody.
//!
//! Registrations and watches never dial. They wait for the link to be up, run their request under its deadline, and tell the link
//! when something looked wrong; the supervisor asks the store and decides. So an outage costs one series of attempts for a handle,
//! however many registrations and watches it holds (L1), and a connection that is open but dead is noticed even if nobody uses it (W12).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::cache::Cache;
use super::throttle::Throttle;
use super::{Backoff, Policy};
use crate::snapshot::Since;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// Sets that are read at once; more would only queue at the store.
const MAX_LOADS: usize = 64;
/// A handle asks for one reconciliation in this time at most, however many services it watches (L1).
const RECONCILE_PACE: Duration = Duration::from_millis(50);

/// Whether the store answers.
#[derive(Debug, Clone)]
pub(crate) enum LinkState {
    /// It does not, since then; the last failure, if one was seen yet.
    Down(Since, Option<Error>),
    /// It does; the number tells one connection from the next.
    Up(u64),
}

pub(crate) struct Link {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) policy: Policy,
    /// Last good sets on disk, if the policy has a place for them.
    pub(super) cache: Option<Cache>,
    /// Bounds how many sets are read at once: with ten thousand watched services a return would otherwise be a storm (L2).
    pub(crate) loads: Arc<Semaphore>,
    /// How many feeds are open, which spaces their reconciliation. A hint, so any ordering does.
    pub(crate) feeds: AtomicUsize,
    /// One line stands for all services to which the same happens at once (L1).
    pub(super) broken_log: Throttle,
    pub(super) brake_log: Throttle,
    pub(super) disk_log: Throttle,
    /// Written by the supervisor alone.
    state: watch::Sender<LinkState>,
    suspicion: Notify,
}

impl Link {
    pub(crate) fn new(store: Arc<dyn Store>, policy: Policy, runtime: &Handle) -> Self {
        let cache = policy.cache.as_ref().map(|cache| Cache::open(cache, store.identity(), runtime));
        let state = watch::Sender::new(LinkState::Down(Since::now(), None));
        let (loads, feeds) = (Arc::new(Semaphore::new(MAX_LOADS)), AtomicUsize::new(0));
        let (broken_log, brake_log, disk_log) = (Throttle::new(), Throttle::new(), Throttle::new());
        let suspicion = Notify::new();
        Self { store, policy, cache, loads, feeds, broken_log, brake_log, disk_log, state, suspicion }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(*self.state.borrow(), LinkState::Up(_))
    }

    /// Why the store does not answer, while it does not.
    pub(crate) fn trouble(&self) -> Option<Error> {
        match &*self.state.borrow() {
            LinkState::Down(_, cause) => cause.clone(),
            LinkState::Up(_) => None,
        }
    }

    /// Runs one request under the policy's deadline; a failure that smells of a dead link makes the supervisor look.
    pub(crate) async fn call<T>(
        &self,
        operation: &'static str,
        subject: impl FnOnce() -> String,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.call_within(self.policy.timeout, operation, subject, request).await
    }

    /// Runs one request under a deadline. It ends with the connection it was made on: nobody waits for an answer that cannot come.
    pub(crate) async fn call_within<T>(
        &self,
        limit: Duration,
        operation: &'static str,
        subject: impl FnOnce() -> String,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut link = self.state.subscribe();
        let answer = tokio::select! {
            biased;
            answer = timeout(limit, request) => answer,
            // Of the state now, only a change counts.
            _ = link.changed() => Ok(Err(Error::new(
                ErrorKind::Unavailable,
                operation,
                self.store.address(),
                "the connection was lost before the answer came",
            ))),
        };
        let error = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(_) => Error::new(
                ErrorKind::DeadlineExceeded,
                operation,
                subject(),
                format!("no answer from {} within {limit:?}", self.store.address()),
            ),
        };
        if error.is_retryable() {
            self.suspect();
        }
        Err(error)
    }

    /// How long a feed waits between two reconciliations, drawn around the policy's interval so that feeds do not fall into step.
    pub(crate) fn reconcile_pause(&self, rng: &mut fastrand::Rng) -> Duration {
        let feeds = u32::try_from(self.feeds.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        self.policy.reconcile.max(RECONCILE_PACE.saturating_mul(feeds)).mul_f64(0.75 + rng.f64() / 2.0)
    }

    pub(crate) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Connects, watches over the connection, and connects again, until it is aborted.
    pub(crate) async fn supervise(self: Arc<Self>) {
        let mut backoff = Backoff::new(self.policy.backoff);
        let mut epoch = 0;
        loop {
            while let Err(error) = self.connect().await {
                let wait = backoff.next(error.is_retryable());
                self.report_down(error);
                sleep(wait).await;
            }
            epoch += 1;
            let up_at = Instant::now();
            self.report_up(epoch);
            let error = self.probe_until_dead().await;
            self.report_down(error);
            // A server that dies as soon as it is used must not be dialled in a tight loop.
            if up_at.elapsed() >= self.policy.probe {
                backoff.reset();
            } else {
                sleep(backoff.next(true)).await;
            }
        }
    }

    async fn connect(&self) -> Result<()> {
        let limit = self.policy.connect_timeout;
        timeout(limit, self.store.connect()).await.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::DeadlineExceeded,
                "connect to",
                self.store.address(),
                format!("no answer within {limit:?}"),
            ))
        })
    }

    async fn probe_until_dead(&self) -> Error {
        let limit = self.policy.timeout.min(self.policy.ttl / 2);
        loop {
            let limit = tokio::select! {
                biased;
                () = sleep(self.policy.probe) => limit,
                () = self.suspicion.notified() => limit / 3,
            };
            match self.probe(limit).await {
                Ok(()) => {}
                // A refusal is an answer: the link works.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                Err(error) => return error,
            }
        }
    }

    /// Asks for an answer. Whoever suspects the link meanwhile waited in vain already, so that only a third of the limit is left then:
    /// what is left of the TTL is needed to reach another host.
    async fn probe(&self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut end = begun + limit;
        let ping = self.store.ping();
        tokio::pin!(ping);
        loop {
            tokio::select! {
                biased;
                answer = &mut ping => return answer,
                () = sleep_until(end) => break,
                () = self.suspicion.notified() => end = end.min(Instant::now() + limit / 3),
            }
        }
        Err(Error::new(
            ErrorKind::DeadlineExceeded,
            "probe",
            self.store.address(),
            format!("the connection is open but silent for {:?}", begun.elapsed()),
        ))
    }

    fn report_down(&self, error: Error) {
        self.state.send_modify(|state| {
            let since = match state {
                LinkState::Down(since, None) => {
                    tracing::warn!(%error, "the registry cannot be reached; sets stay as they are and are marked stale");
                    *since
                }
                LinkState::Down(since, Some(_)) => {
                    tracing::debug!(%error, down_for = ?since.elapsed(), "the registry still cannot be reached");
                    *since
                }
                LinkState::Up(_) => {
                    tracing::warn!(%error, "the registry was lost; sets stay as they are and are marked stale");
                    Since::now()
                }
            };
            *state = LinkState::Down(since, Some(error));
        });
    }

    fn report_up(&self, epoch: u64) {
        let before = self.state.send_replace(LinkState::Up(epoch));
        if let LinkState::Down(since, Some(_)) = before {
            tracing::info!(address = %self.store.address(), down_for = ?since.elapsed(), "the registry answers again");
        }
    }
}
