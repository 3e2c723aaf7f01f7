//! A registration: the handle that keeps an instance registered.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::model::Key;
use crate::snapshot::Since;
use crate::{Error, ErrorKind, Instance, InstanceBuilder, Result, State};

/// How to register.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RegisterOptions {
    deadline: Duration,
}

impl Default for RegisterOptions {
    /// Ten seconds to confirm.
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10) }
    }
}

impl RegisterOptions {
    /// Sets how long `register` may take until the store has confirmed.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How long `register` may take.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }
}

/// Whether a registration holds right now (R11).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RegistrationState {
    /// It was not confirmed yet.
    Registering,
    /// The store has the record, as last updated.
    Registered,
    /// The store may not have the record: since when, and why. It is being repaired.
    Reconnecting(Since, Error),
    /// A newer owner registered the same id; this handle does nothing more.
    Superseded,
    /// It was deregistered, or its backend was closed.
    Closed,
}

impl RegistrationState {
    /// Whether the store has the record, as last updated.
    pub fn is_registered(&self) -> bool {
        matches!(self, Self::Registered)
    }
}

/// What a handle asks of the keeper. Each carries the serial of its registration, so that a late word from a former owner is ignored.
pub(crate) enum Command {
    Register {
        key: Key,
        serial: u64,
        instance: Instance,
        state: watch::Sender<RegistrationState>,
        done: oneshot::Sender<Result<()>>,
    },
    Update {
        key: Key,
        serial: u64,
        instance: Instance,
        done: oneshot::Sender<Result<()>>,
    },
    Remove {
        key: Key,
        serial: u64,
        done: Option<oneshot::Sender<Result<()>>>,
    },
    Close {
        done: oneshot::Sender<Result<()>>,
    },
}

/// What a handle is kept by: an engine, or several registries as one.
pub(crate) trait Keeping: Send + Sync + fmt::Debug {
    fn next_serial(&self) -> u64;
    /// An error means that it was closed.
    fn send(&self, command: Command) -> Result<(), ()>;
    /// What stands in the way of the record of a key, if something is known to.
    fn trouble(&self, key: &Key) -> Option<Error>;
    /// The address without credentials, for messages.
    fn address(&self) -> String;
    /// Refuses what a store would refuse, before it is sent (R12).
    fn check_record(&self, instance: &Instance, operation: &'static str) -> Result<()>;
}

/// The answer to the first registration.
#[derive(Debug)]
enum First {
    Awaited(oneshot::Receiver<Result<()>>),
    Known(Result<()>),
}

/// Keeps one instance registered while it lives. Dropping it deregisters as best it can (R10).
#[derive(Debug)]
pub struct Registration {
    core: Arc<dyn Keeping>,
    key: Key,
    serial: u64,
    /// The last instance that was asked for; written by `update` and `drain` alone.
    instance: Mutex<Instance>,
    state: watch::Receiver<RegistrationState>,
    /// Locked while somebody waits for it.
    first: tokio::sync::Mutex<First>,
}

/// How long `deregister` waits for the store by default.
const DEREGISTER_DEADLINE: Duration = Duration::from_secs(5);

impl Registration {
    pub(crate) fn begin(core: Arc<dyn Keeping>, instance: Instance) -> Result<Self> {
        core.check_record(&instance, "register")?;
        let key = instance.key();
        let (state_tx, state) = watch::channel(RegistrationState::Registering);
        let (done, answer) = oneshot::channel();
        let serial = core.next_serial();
        let first = tokio::sync::Mutex::new(First::Awaited(answer));
        let handle = Self { core, key: key.clone(), serial, instance: Mutex::new(instance.clone()), state, first };
        handle.send(Command::Register { key, serial, instance, state: state_tx, done }, "register")?;
        Ok(handle)
    }

    /// Waits until the store has confirmed the registration for the first time, as [`register`](crate::Registry::register) does.
    ///
    /// # Errors
    /// What ended the registration, as long as it was never confirmed; `DeadlineExceeded` with the last cause if the store did not confirm
    /// in time, in which case it is still tried.
    ///
    /// # Cancel safety
    /// Safe to drop at any time.
    pub async fn confirmed(&self, deadline: Duration) -> Result<()> {
        let first = async {
            let mut first = self.first.lock().await;
            let result = match &mut *first {
                First::Awaited(answer) => answer.await.unwrap_or_else(|_| Err(self.closed("register"))),
                First::Known(result) => result.clone(),
            };
            *first = First::Known(result.clone());
            result
        };
        self.wait("register", first, deadline).await
    }

    /// The instance as it was last updated.
    pub fn instance(&self) -> Instance {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the registration holds right now.
    pub fn state(&self) -> RegistrationState {
        self.state.borrow().clone()
    }

    pub(crate) fn states(&self) -> watch::Receiver<RegistrationState> {
        self.state.clone()
    }

    /// Waits until the state changes, and returns the new one.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call still sees the change.
    pub async fn state_changed(&mut self) -> RegistrationState {
        if self.state.changed().await.is_err() {
            return RegistrationState::Closed;
        }
        self.state.borrow_and_update().clone()
    }

    /// Changes the record, which watchers see as one modification (R7). Service and id cannot change.
    ///
    /// # Errors
    /// `InvalidInput` or `TooLarge` if the change cannot work, in which case nothing changed; `Superseded` or `Closed`; otherwise the
    /// reason why the store did not confirm within ten seconds, in which case the change is still wanted and will be written.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the change back.
    pub async fn update(&self, change: impl FnOnce(InstanceBuilder) -> InstanceBuilder + Send) -> Result<()> {
        let (done, answer) = oneshot::channel();
        {
            // Held until the command is sent: of two updates at once, the second one builds on the first.
            let mut current = self.instance.lock().unwrap_or_else(PoisonError::into_inner);
            let instance = change(current.to_builder()).build()?;
            if instance.key() != self.key {
                let why = "service and id cannot change; register anew";
                return Err(Error::invalid("update", self.key.to_string(), why));
            }
            self.core.check_record(&instance, "update")?;
            *current = instance.clone();
            let (key, serial) = (self.key.clone(), self.serial);
            self.send(Command::Update { key, serial, instance, done }, "update")?;
        }
        let answer = async { answer.await.unwrap_or_else(|_| Err(self.closed("update"))) };
        self.wait("update", answer, RegisterOptions::default().deadline).await
    }

    /// Marks the record as draining, waits `grace` so that watchers can see it, then deregisters (R9).
    ///
    /// The grace counts from when the store has the mark. If it cannot be written, it deregisters all the same, after twice the grace.
    ///
    /// # Errors
    /// As [`deregister`](Self::deregister).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the instance registered, possibly draining.
    pub async fn drain(&self, grace: Duration) -> Result<()> {
        // The grace is the watchers' time to see the mark, so it counts from when the store has it; a mark that cannot be written
        // takes as long once more.
        match tokio::time::timeout(grace, self.update(|instance| instance.state(State::Draining))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(key = %self.key, %error, "could not mark the instance as draining"),
            Err(_) => tracing::warn!(key = %self.key, "the mark of draining was not confirmed within the grace"),
        }
        tokio::time::sleep(grace).await;
        self.deregister().await
    }

    /// Removes the record and returns once it is gone, within five seconds (R2).
    ///
    /// # Errors
    /// The reason, if the store did not confirm in time. Removal is tried on in the background, and a second call waits for it again.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the removal.
    pub async fn deregister(&self) -> Result<()> {
        self.deregister_within(DEREGISTER_DEADLINE).await
    }

    /// As [`deregister`](Self::deregister), within a deadline of the caller's.
    ///
    /// # Errors
    /// As [`deregister`](Self::deregister).
    pub async fn deregister_within(&self, deadline: Duration) -> Result<()> {
        let (done, answer) = oneshot::channel();
        let command = Command::Remove { key: self.key.clone(), serial: self.serial, done: Some(done) };
        if let Err(error) = self.send(command, "deregister") {
            // A backend that was closed has removed the record. One whose runtime is gone has not.
            return match self.state() {
                RegistrationState::Closed | RegistrationState::Superseded => Ok(()),
                _ => Err(error),
            };
        }
        let answer = async { answer.await.unwrap_or_else(|_| Err(self.closed("deregister"))) };
        self.wait("deregister", answer, deadline).await
    }

    fn send(&self, command: Command, operation: &'static str) -> Result<()> {
        self.core.send(command).map_err(|()| self.closed(operation))
    }

    fn closed(&self, operation: &'static str) -> Error {
        Error::closed(operation, self.key.to_string())
    }

    async fn wait(
        &self,
        operation: &'static str,
        answer: impl Future<Output = Result<()>>,
        deadline: Duration,
    ) -> Result<()> {
        match tokio::time::timeout(deadline, answer).await {
            Ok(result) => result,
            Err(_) => {
                let why = match self.core.trouble(&self.key).or_else(|| self.cause()) {
                    Some(cause) => {
                        format!("not confirmed within {deadline:?}; the last failure was: {cause}")
                    }
                    None => format!("not confirmed within {deadline:?} by {}", self.core.address()),
                };
                Err(Error::new(ErrorKind::DeadlineExceeded, operation, self.key.to_string(), why))
            }
        }
    }

    fn cause(&self) -> Option<Error> {
        match &*self.state.borrow() {
            RegistrationState::Reconnecting(_, cause) => Some(cause.clone()),
            _ => None,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // An error means that the keeper has ended, and with it the registration.
        let _ = self.core.send(Command::Remove { key: self.key.clone(), serial: self.serial, done: None });
    }
}
