//! The feeds of a handle: one for each scope that somebody watches, gone with its last watch (W7).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::feed::Feed;
use super::instances::Instances;
use super::model::{Hold, Model};
use super::names::Names;
use super::{Brake, EngineCore};
use crate::model::check_name;
use crate::registry::{FeedHandle, Watch};
use crate::snapshot::{Freshness, Snapshot};
use crate::store::Scope;
use crate::{ServiceNames, snapshot::View};

/// The open feeds. The maps hold weak references: a feed lives as long as its watches.
#[derive(Default)]
pub(super) struct Feeds {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    closed: bool,
    services: HashMap<Arc<str>, Weak<Shared<Snapshot>>>,
    names: Weak<Shared<ServiceNames>>,
}

/// What the watches of one scope share. Dropping the last one ends the subscription.
struct Shared<V: View> {
    core: Arc<EngineCore>,
    scope: Scope,
    receiver: watch::Receiver<Arc<V>>,
    /// `None` where there is nothing to follow: a bad name, or a closed backend.
    task: Option<AbortHandle>,
}

impl Feeds {
    pub(super) fn watch(core: &Arc<EngineCore>, service: &str) -> Watch {
        let mut open = core.feeds.lock();
        if let Some(shared) = open.services.get(service).and_then(Weak::upgrade) {
            return shared.watch();
        }
        let service: Arc<str> = service.into();
        let policy = &core.link.policy;
        let hold = match policy.brake {
            Brake::Off => None,
            Brake::Hold { share, grace } => Some(Hold { share, grace: grace.unwrap_or(policy.ttl) }),
        };
        let scope = Scope::Service(service.clone());
        let shared = match check_name("service", &service) {
            Ok(()) => Shared::open(core, open.closed, scope, Instances::new(service.clone(), core.link.clone(), hold)),
            Err(error) => {
                // A watch cannot fail, so a bad name is a set that never comes, with its reason.
                let mut view = Snapshot::loading(service.clone());
                view.freshness = Freshness::Loading(crate::Since::now(), Some(error));
                let (sender, receiver) = watch::channel(Arc::new(view));
                let task =
                    (!open.closed).then(|| core.runtime.spawn(async move { sender.closed().await }).abort_handle());
                Arc::new(Shared { core: core.clone(), scope, receiver, task })
            }
        };
        open.services.insert(service, Arc::downgrade(&shared));
        shared.watch()
    }

    pub(super) fn watch_names(core: &Arc<EngineCore>) -> Watch<ServiceNames> {
        let mut open = core.feeds.lock();
        if let Some(shared) = open.names.upgrade() {
            return shared.watch();
        }
        let shared = Shared::open(core, open.closed, Scope::Names, Names::new(core.link.store.clone()));
        open.names = Arc::downgrade(&shared);
        shared.watch()
    }

    /// Ends all feeds, and with them their watches (W5).
    pub(super) fn close(&self) {
        let mut open = self.lock();
        open.closed = true;
        let services = std::mem::take(&mut open.services);
        let names = std::mem::take(&mut open.names);
        drop(open); // Ending a feed may drop its last reference, which takes the lock again.
        services.values().filter_map(Weak::upgrade).for_each(|shared| shared.end());
        names.upgrade().iter().for_each(|shared| shared.end());
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: View> Shared<V> {
    fn open<M: Model<View = V>>(core: &Arc<EngineCore>, closed: bool, scope: Scope, model: M) -> Arc<Self> {
        let (feed, receiver) = Feed::new(core.link.clone(), scope.clone(), model);
        // A closed backend's feed is dropped here, so its watches end at once.
        let task = (!closed).then(|| core.runtime.spawn(feed.run()).abort_handle());
        Arc::new(Self { core: core.clone(), scope, receiver, task })
    }

    fn watch(self: &Arc<Self>) -> Watch<V> {
        Watch::new(self.clone(), self.receiver.clone())
    }

    fn end(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<V: View> FeedHandle for Shared<V> {
    fn subject(&self) -> String {
        match &self.scope {
            Scope::Service(service) => format!("service {service:?} on {}", self.core.address()),
            Scope::Names => format!("the list of services on {}", self.core.address()),
        }
    }
}

impl<V: View> Drop for Shared<V> {
    fn drop(&mut self) {
        self.end();
        let mut open = self.core.feeds.lock();
        // A newer feed of the same scope may stand there already; only a dead entry is removed.
        match &self.scope {
            Scope::Service(service) => {
                if open.services.get(service).is_some_and(|shared| shared.strong_count() == 0) {
                    open.services.remove(service);
                }
            }
            Scope::Names => {}
        }
    }
}
