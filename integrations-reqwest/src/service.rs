//! One service: its balancer, and a client for each of its instances that was called.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use discovery_core::attempts::RetryBudget;
use discovery_core::{Balancer, Change, Context, Error, Instance, Outcome, Pick, Snapshot, Watch};
use reqwest::Client;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};

use crate::absence::Absences;
use crate::builder::Options;
use crate::called::Called;
use crate::error::FailedAttempt;
use crate::hosts::Destination;
use crate::target::Target;

/// How often a request picks in a row before it counts the instances. Each pick in vain takes one of them out of the next picks.
const PICKS: usize = 4;

pub(crate) struct Service {
    shared: Arc<Shared>,
    /// Follows the watch. It ends with this value.
    task: AbortHandle,
    /// Closes the service when nobody uses it. It ends with this value.
    closer: OnceLock<AbortHandle>,
}

/// What requests and the task have in common.
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    destination: Destination,
    pub(crate) options: Arc<Options>,
    pub(crate) balancer: Balancer,
    pub(crate) absences: Absences,
    pub(crate) budget: RetryBudget,
    watch: Watch,
    /// By instance id. A client is entered by the first request to its instance and only while the watch has that; the task removes it
    /// after the watch has lost it. So none stays behind, whoever comes first.
    clients: Mutex<HashMap<Arc<str>, Arc<Way>>>,
}

/// How an instance is called.
pub(crate) struct Way {
    /// The record that `target` was made of, and where it leads.
    pub(crate) called: Called,
    pub(crate) target: Target,
    pub(crate) client: Client,
    /// How many requests in a row got no answer in their time. It publishes nothing, so relaxed ordering suffices.
    late: AtomicU32,
}

impl Way {
    /// Hears of a sign of life.
    pub(crate) fn answered(&self) {
        if self.late.load(Ordering::Relaxed) > 0 {
            self.late.store(0, Ordering::Relaxed);
        }
    }

    /// Hears that no answer came in time, and answers how often that was in a row.
    pub(crate) fn late(&self) -> u32 {
        self.late.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }
}

/// An instance that takes a request, and the way to it.
pub(crate) struct Chosen {
    pub(crate) pick: Pick,
    pub(crate) way: Arc<Way>,
}

/// Why there is no way to an instance.
enum NoWay {
    /// Its record has no address that can be called.
    Instance(String),
    /// The user's settings make no client.
    Settings(reqwest::Error),
}

/// What a request finds.
pub(crate) enum Choice {
    Chosen(Chosen),
    /// The balancer's reason why nobody can be picked.
    Nobody(Error),
    /// Whoever was picked cannot be reached at the moment.
    Unreachable,
    /// The user's settings make no client.
    NoClient(reqwest::Error),
}

impl Service {
    pub(crate) fn open(destination: Destination, watch: Watch, options: Arc<Options>) -> Self {
        let name = destination.service.clone();
        let balancer =
            Balancer::with_options(watch.clone(), (options.picker)(&name), options.balancer_for(&destination));
        let shared = Arc::new(Shared {
            name,
            destination,
            absences: Absences::new({
                let balancer = balancer.clone();
                move |id, available| balancer.set_available(id, available)
            }),
            balancer,
            budget: options.retries.as_ref().map_or_else(RetryBudget::default, |retries| retries.budget()),
            options,
            watch: watch.clone(),
            clients: Mutex::default(),
        });
        let task = tokio::spawn(follow(shared.clone(), watch)).abort_handle();
        Self { shared, task, closer: OnceLock::new() }
    }

    /// Ends the task that closes the service together with it.
    pub(crate) fn own(&self, closer: JoinHandle<()>) {
        self.closer.get_or_init(|| closer.abort_handle());
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(closer) = self.closer.get() {
            closer.abort();
        }
    }
}

impl Shared {
    pub(crate) fn is_closed(&self) -> bool {
        self.watch.is_closed()
    }

    /// Picks an instance that may be called now.
    pub(crate) fn choose(&self, context: &Context<'_>) -> Choice {
        let (mut picks, mut counted) = (0, None);
        loop {
            // Once for each instance, so that however many are bad, a good one is found; no more, as somebody else may be told of each.
            if picks >= PICKS && picks >= PICKS + *counted.get_or_insert_with(|| self.balancer.known()) {
                return Choice::Unreachable;
            }
            picks += 1;
            let pick = match self.balancer.pick(context) {
                Ok(pick) => pick,
                Err(error) => return Choice::Nobody(error),
            };
            let instance = pick.instance();
            if !self.absences.admits(instance.id()) {
                pick.discard();
                continue;
            }
            match self.way(&instance) {
                Ok(way) => return Choice::Chosen(Chosen { pick, way }),
                Err(NoWay::Settings(error)) => {
                    pick.discard();
                    return Choice::NoClient(error);
                }
                Err(NoWay::Instance(why)) => {
                    pick.discard();
                    tracing::warn!(service = %self.name, id = instance.id(), %why, "an instance cannot be called");
                    self.absences.refused(FailedAttempt { id: instance.id().into(), endpoint: None, why: why.into() });
                }
            }
        }
    }

    /// Reports that no connection was made: the balancer ejects the instance, and until it is tried again nobody is sent there.
    pub(crate) fn unreachable(&self, pick: Pick, attempt: FailedAttempt) {
        pick.finish(Outcome::Unreachable);
        self.absences.refused(attempt);
    }

    /// The way to an instance; its client is made by the first request that needs it.
    fn way(&self, instance: &Arc<Instance>) -> Result<Arc<Way>, NoWay> {
        if let Some(way) = self.clients().get(instance.id()).filter(|way| way.called.is(instance)) {
            return Ok(way.clone());
        }
        let target = Target::of(instance, self.destination.via).map_err(NoWay::Instance)?;
        let known = self.client_for(instance.id(), &target);
        // Made outside of the lock, since reading certificates takes its time.
        let made = known.map_or_else(|| target.client((self.options.settings)()), Ok).map_err(NoWay::Settings)?;
        let mut clients = self.clients();
        // Of two that are made at once, the first one stays.
        let client =
            clients.get(instance.id()).filter(|way| way.target == target).map_or(made, |way| way.client.clone());
        let called = Called::new(instance.clone(), target.endpoint.clone(), target.base.clone());
        let way = Arc::new(Way { called, target, client, late: AtomicU32::new(0) });
        if self.watch.latest().is_some_and(|set| set.get(instance.id()).is_some()) {
            clients.insert(instance.id().into(), way.clone());
        }
        Ok(way)
    }

    fn client_for(&self, id: &str, target: &Target) -> Option<Client> {
        self.clients().get(id).filter(|way| way.target == *target).map(|way| way.client.clone())
    }

    pub(crate) fn clients_held(&self) -> usize {
        self.clients().len()
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Way>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops what belongs to instances that are gone, and lets those be tried again that could not be reached.
async fn follow(shared: Arc<Shared>, mut watch: Watch) {
    let mut news = shared.absences.subscribe();
    let mut before: Option<Arc<Snapshot>> = None;
    let mut open = true;
    loop {
        news.mark_unchanged();
        let next = shared.absences.offer(|id| before.as_ref().is_none_or(|set| set.get(id).is_some()));
        let time_is_over = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = watch.changed(), if open => match changed {
                Some(snapshot) => {
                    let changes = match &before {
                        Some(before) => snapshot.changes_since(before),
                        // Requests may have seen a set before this one.
                        None => {
                            shared.clients().retain(|id, _| snapshot.get(id).is_some());
                            Vec::new()
                        }
                    };
                    for change in changes {
                        match change {
                            Change::Removed(instance) => {
                                shared.clients().remove(instance.id());
                                shared.absences.forget(instance.id());
                            }
                            Change::Modified(_, instance) => shared.renew(&instance),
                            Change::Added(_) => {}
                        }
                    }
                    before = Some(snapshot);
                }
                // The backend was closed: the last set stays usable, as it does in the balancer.
                None => open = false,
            },
            // The sender lives as long as `shared`.
            _ = news.changed() => {}
            () = time_is_over => {}
        }
    }
}

impl Shared {
    /// A record that changed may lead elsewhere; then what is known of the old address says nothing any more.
    fn renew(&self, instance: &Instance) {
        let target = Target::of(instance, self.destination.via).ok();
        let mut clients = self.clients();
        if clients.get(instance.id()).is_some_and(|way| Some(&way.target) != target.as_ref()) {
            clients.remove(instance.id());
        }
        drop(clients);
        self.absences.forget(instance.id());
    }
}

/// When a service was used last.
pub(crate) struct Used {
    pub(crate) service: Arc<Service>,
    pub(crate) at: Instant,
}
