//! The feeds of a handle: one for each scope that somebody watches, gone with its last watch (W7).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::watch::{FeedHandle, Watch};
use crate::ServiceNames;
use crate::model::check_name;
use crate::snapshot::{Freshness, Snapshot, View};
use crate::store::Scope;

/// The views of a scope, the newest of which counts, and the task that makes them; whoever drops the task ends the views.
pub(crate) type Opened<V> = (watch::Receiver<Arc<V>>, BoxFuture<'static, ()>);

/// What feeds are opened of: an engine, or several registries as one.
pub(crate) trait Source: Send + Sync + Sized + 'static {
    fn feeds(&self) -> &Feeds<Self>;
    fn runtime(&self) -> &Handle;
    /// The address without credentials, for messages.
    fn address(&self) -> String;
    fn open_service(&self, service: &Arc<str>) -> Opened<Snapshot>;
    fn open_names(&self) -> Opened<ServiceNames>;
}

/// The open feeds. The maps hold weak references: a feed lives as long as its watches.
pub(crate) struct Feeds<S: Source> {
    open: Mutex<Open<S>>,
}

struct Open<S: Source> {
    closed: bool,
    services: HashMap<Arc<str>, Weak<Shared<S, Snapshot>>>,
    names: Weak<Shared<S, ServiceNames>>,
}

impl<S: Source> Default for Feeds<S> {
    fn default() -> Self {
        Self { open: Mutex::new(Open { closed: false, services: HashMap::new(), names: Weak::new() }) }
    }
}

/// What the watches of one scope share. Dropping the last one ends the subscription.
struct Shared<S: Source, V: View> {
    source: Arc<S>,
    scope: Scope,
    receiver: watch::Receiver<Arc<V>>,
    /// `None` of a closed backend, where there is nothing to follow.
    task: Option<AbortHandle>,
}

impl<S: Source> Feeds<S> {
    pub(crate) fn watch(source: &Arc<S>, service: &str) -> Watch {
        let mut open = source.feeds().lock();
        if let Some(shared) = open.services.get(service).and_then(Weak::upgrade) {
            return shared.watch();
        }
        let service: Arc<str> = service.into();
        let opened = match check_name("service", &service) {
            Ok(()) => source.open_service(&service),
            Err(error) => {
                // A watch cannot fail, so a bad name is a set that never comes, with its reason.
                let mut view = Snapshot::loading(service.clone());
                view.freshness = Freshness::Loading(crate::Since::now(), Some(error));
                let (sender, receiver) = watch::channel(Arc::new(view));
                let task: BoxFuture<'static, ()> = Box::pin(async move { sender.closed().await });
                (receiver, task)
            }
        };
        let shared = Shared::open(source, open.closed, Scope::Service(service.clone()), opened);
        open.services.insert(service, Arc::downgrade(&shared));
        shared.watch()
    }

    pub(crate) fn watch_names(source: &Arc<S>) -> Watch<ServiceNames> {
        let mut open = source.feeds().lock();
        if let Some(shared) = open.names.upgrade() {
            return shared.watch();
        }
        let shared = Shared::open(source, open.closed, Scope::Names, source.open_names());
        open.names = Arc::downgrade(&shared);
        shared.watch()
    }

    /// Ends all feeds, and with them their watches (W5).
    pub(crate) fn close(&self) {
        let mut open = self.lock();
        open.closed = true;
        let services = std::mem::take(&mut open.services);
        let names = std::mem::take(&mut open.names);
        drop(open); // Ending a feed may drop its last reference, which takes the lock again.
        services.values().filter_map(Weak::upgrade).for_each(|shared| shared.end());
        names.upgrade().iter().for_each(|shared| shared.end());
    }

    fn lock(&self) -> MutexGuard<'_, Open<S>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Source, V: View> Shared<S, V> {
    fn open(source: &Arc<S>, closed: bool, scope: Scope, (receiver, task): Opened<V>) -> Arc<Self> {
        // A closed backend's feed is dropped here, so its watches end at once.
        let task = (!closed).then(|| source.runtime().spawn(task).abort_handle());
        Arc::new(Self { source: source.clone(), scope, receiver, task })
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

impl<S: Source, V: View> FeedHandle for Shared<S, V> {
    fn subject(&self) -> String {
        match &self.scope {
            Scope::Service(service) => format!("service {service:?} on {}", self.source.address()),
            Scope::Names => format!("the list of services on {}", self.source.address()),
        }
    }
}

impl<S: Source, V: View> Drop for Shared<S, V> {
    fn drop(&mut self) {
        self.end();
        let mut open = self.source.feeds().lock();
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
