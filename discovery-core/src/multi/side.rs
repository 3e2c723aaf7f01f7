//! One side of a registration: keeps the instance registered in one registry, whatever that answers, and reports how it goes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::engine::Backoff;
use crate::registry::{Backend, Registration};
use crate::{Error, ErrorKind, Instance, Policy, RegistrationState};

/// How long one try to deregister may take, so that its cause is known before the caller's deadline.
const REMOVAL: Duration = Duration::from_secs(1);

/// What a registration should be on every side.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) wanted: Wanted,
    /// Rises with each change.
    pub(super) version: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Wanted {
    Present(Instance),
    /// A newer owner has it on another side. Where this one still holds it, the newer gets a moment to take it over, so that no watcher sees
    /// a removal; where it does not, nothing may be written any more.
    Left,
    Gone,
}

/// What is known of one side.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    /// Whether the registry has the record, of whichever version.
    pub(super) holds: bool,
    /// The newest version that it has confirmed.
    pub(super) confirmed: u64,
    /// What stands in the way.
    pub(super) cause: Option<Error>,
    /// The version that it refused for good.
    pub(super) refused: Option<u64>,
    pub(super) end: Option<End>,
}

/// How a side ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The record is gone, as it was wanted.
    Gone,
    /// A newer owner has it.
    Superseded,
    /// The side's backend was closed by hand, so that it takes no part any more.
    Closed,
}

/// Tends one side until it ends. What it holds is withdrawn when it is dropped.
pub(super) struct Side {
    pub(super) at: usize,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) wish: watch::Receiver<Wish>,
    pub(super) reports: Arc<watch::Sender<Vec<Report>>>,
    /// How long a newer owner may take to come to this side, too.
    pub(super) patience: Duration,
}

impl Side {
    pub(super) async fn tend(mut self) {
        let mut backoff = Backoff::new(Policy::default().backoff);
        let end = loop {
            let Wish { wanted, version } = self.wish.borrow_and_update().clone();
            let instance = match wanted {
                Wanted::Present(instance) => instance,
                Wanted::Left => break End::Superseded,
                Wanted::Gone => break End::Gone,
            };
            let error = match self.backend.begin(instance) {
                Ok(registration) => match self.keep(registration, version).await {
                    Ok(end) => break end,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if error.kind() == ErrorKind::Closed {
                break End::Closed;
            }
            // Nothing is there now. It is tried again, as its cause may be mended.
            let wait = backoff.next(error.is_retryable());
            self.fail(&error);
            tokio::select! {
                () = sleep(wait) => {}
                _ = self.wish.changed() => {}
            }
        };
        self.report(|report| (report.end, report.holds) = (Some(end), false));
    }

    /// Keeps a registration as it is wanted; fails if the registry ended it.
    async fn keep(&mut self, registration: Registration, version: u64) -> Result<End, Error> {
        let mut states = registration.states();
        let (mut version, held) = (version, &registration);
        // It answers when the registry does, or ends; the wait is the callers'.
        let mut work = held.confirmed(Duration::MAX).boxed();
        let mut working = true;
        loop {
            tokio::select! {
                biased;
                result = &mut work, if working => match result {
                    Ok(()) => {
                        working = false;
                        self.report(|report| {
                            (report.holds, report.confirmed) = (true, version);
                            (report.cause, report.refused) = (None, None);
                        });
                    }
                    Err(error) => {
                        match &*states.borrow() {
                            RegistrationState::Superseded => return Ok(End::Superseded),
                            RegistrationState::Closed => return Err(error),
                            _ => {}
                        }
                        self.fail(&error);
                        let again = self.wish.borrow().wanted.clone();
                        work = async move {
                            if !error.is_retryable() {
                                sleep(Policy::default().backoff).await;
                            }
                            match again {
                                Wanted::Present(instance) => held.update(|_| instance.to_builder()).await,
                                Wanted::Left | Wanted::Gone => Ok(()),
                            }
                        }
                        .boxed();
                    }
                },
                changed = states.changed() => {
                    let state = states.borrow_and_update().clone();
                    match state {
                        _ if changed.is_err() => return Err(Error::closed("keep", self.backend.address())),
                        RegistrationState::Superseded => return Ok(End::Superseded),
                        RegistrationState::Closed if !working => return Err(Error::closed("keep", self.backend.address())),
                        RegistrationState::Registered => self.report(|report| {
                            report.holds = true;
                            report.cause = report.cause.take().filter(|_| report.confirmed < version);
                        }),
                        RegistrationState::Reconnecting(_, cause) => self.report(|report| {
                            (report.holds, report.cause) = (false, Some(cause));
                        }),
                        // The answer says why.
                        RegistrationState::Closed | RegistrationState::Registering => {}
                    }
                }
                // Whoever wishes outlives this.
                _ = self.wish.changed() => {
                    let wish = self.wish.borrow_and_update().clone();
                    let instance = match wish.wanted {
                        Wanted::Present(instance) => instance,
                        Wanted::Left => {
                            if self.reports.borrow()[self.at].holds {
                                let taken = states.wait_for(|state| matches!(state, RegistrationState::Superseded));
                                // Whether it was taken or not, it is given up here.
                                let _ = timeout(self.patience, taken).await;
                            }
                            return Ok(End::Superseded);
                        }
                        Wanted::Gone => return Ok(self.remove(held).await),
                    };
                    version = wish.version;
                    work = async move { held.update(|_| instance.to_builder()).await }.boxed();
                    working = true;
                }
            }
        }
    }

    async fn remove(&mut self, registration: &Registration) -> End {
        let mut backoff = Backoff::new(Policy::default().backoff);
        loop {
            match registration.deregister_within(REMOVAL).await {
                Ok(()) => return End::Gone,
                Err(error) => {
                    self.report(|report| report.cause = Some(error.clone()));
                    // It failed before its deadline only if nothing can be asked any more.
                    if error.kind() == ErrorKind::Closed {
                        return End::Closed;
                    }
                    // A refusal comes at once, and would come thousands of times. Whoever calls again has it tried at once (R2).
                    if error.kind() != ErrorKind::DeadlineExceeded {
                        tokio::select! {
                            () = sleep(backoff.next(error.is_retryable())) => {}
                            _ = self.wish.changed() => {}
                        }
                    }
                }
            }
        }
    }

    fn fail(&self, error: &Error) {
        let version = self.wish.borrow().version;
        self.report(|report| {
            report.cause = Some(error.clone());
            // The newest: whoever waits for an older one has its answer.
            report.refused = report.refused.max((!error.is_retryable()).then_some(version));
        });
    }

    fn report(&self, change: impl FnOnce(&mut Report)) {
        self.reports.send_modify(|reports| change(&mut reports[self.at]));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Result;
    use crate::memory::MemoryStore;
    use crate::model::Key;
    use crate::registry::{Command, Keeping};

    /// Holds what is registered, and refuses at once to remove it.
    #[derive(Debug, Default)]
    struct Refusing(AtomicUsize);

    impl Keeping for Refusing {
        fn next_serial(&self) -> u64 {
            1
        }

        fn send(&self, command: Command) -> Result<(), ()> {
            if let Command::Remove { done: Some(done), .. } = command {
                self.0.fetch_add(1, Ordering::Relaxed);
                let denied = Error::new(ErrorKind::PermissionDenied, "remove", "pay/a", "not you");
                done.send(Err(denied)).map_err(drop)?;
            }
            Ok(())
        }

        fn trouble(&self, _: &Key) -> Option<Error> {
            None
        }

        fn address(&self) -> String {
            "refusing:".to_owned()
        }

        fn check_record(&self, _: &Instance, _: &'static str) -> Result<()> {
            Ok(())
        }
    }

    /// L1, R2: a removal that is refused at once is tried again seldom, and at once when somebody asks for it again.
    #[tokio::test(start_paused = true)]
    async fn l01_a_refused_removal_is_no_loop() {
        let (wishes, wish) = watch::channel(Wish { wanted: Wanted::Gone, version: 0 });
        let (refusing, backend) = (Arc::new(Refusing::default()), MemoryStore::new().connect());
        let instance = Instance::builder("pay").id("a").endpoint("grpc://h:1").build().unwrap();
        let registration = Registration::begin(refusing.clone(), instance).unwrap();
        let reports = Arc::new(watch::Sender::new(vec![Report::default()]));
        let mut side = Side { at: 0, backend, wish, reports: reports.clone(), patience: Duration::ZERO };
        let tries = || refusing.0.load(Ordering::Relaxed);
        assert!(timeout(Duration::from_secs(60), side.remove(&registration)).await.is_err());
        assert!((5..=13).contains(&tries()), "{} in a minute", tries());
        assert!(reports.borrow()[0].cause.is_some());
        let before = tries();
        let again = async {
            sleep(Duration::from_secs(1)).await;
            wishes.send_modify(|wish| wish.version += 1);
        };
        let (_, ()) = tokio::join!(timeout(Duration::from_secs(2), side.remove(&registration)), again);
        assert_eq!(tries() - before, 2);
    }

    /// Each update that a side refuses is answered, not only the first.
    #[tokio::test]
    async fn r07_the_newest_version_that_was_refused_counts() {
        let (wishes, wish) = watch::channel(Wish { wanted: Wanted::Gone, version: 0 });
        let reports = Arc::new(watch::Sender::new(vec![Report::default()]));
        let backend = MemoryStore::new().connect();
        let side = Side { at: 0, backend, wish, reports: reports.clone(), patience: Duration::ZERO };
        let denied = Error::new(ErrorKind::PermissionDenied, "write", "pay/a", "not you");
        let away = Error::new(ErrorKind::Unavailable, "write", "pay/a", "nobody there");
        for (version, error, refused) in
            [(1, &away, None), (2, &denied, Some(2)), (3, &away, Some(2)), (3, &denied, Some(3)), (4, &denied, Some(4))]
        {
            wishes.send_modify(|wish| wish.version = version);
            side.fail(error);
            assert_eq!(reports.borrow()[0].refused, refused, "version {version}");
        }
    }
}
