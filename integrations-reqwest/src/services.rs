//! The services that a client calls, opened by their first request.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use discovery_core::Backend;
use tokio::time::{Instant, sleep_until};

use crate::builder::Options;
use crate::hosts::Destination;
use crate::service::{Service, Used};

/// How many services one client keeps open. Without a bound, names out of URLs that others wrote would open watches without end.
pub(crate) const MOST_SERVICES: usize = 1_000;

pub(crate) struct Services {
    backend: Arc<dyn Backend>,
    pub(crate) options: Arc<Options>,
    open: Mutex<HashMap<Destination, Used>>,
}

impl Services {
    pub(crate) fn new(backend: Arc<dyn Backend>, options: Arc<Options>) -> Arc<Self> {
        Arc::new(Self { backend, options, open: Mutex::default() })
    }

    /// The service, opened if it is not.
    pub(crate) fn get(self: &Arc<Self>, destination: Destination) -> Arc<Service> {
        let at = Instant::now();
        let mut open = self.lock();
        if let Some(used) = open.get_mut(&destination) {
            used.at = at;
            return used.service.clone();
        }
        if open.len() >= MOST_SERVICES
            && let Some(longest) = open.iter().min_by_key(|(_, used)| used.at).map(|(longest, _)| longest.clone())
        {
            // Whoever is calling it has it as long as the call lasts.
            open.remove(&longest);
        }
        let watch = self.backend.watch(&destination.service);
        let service = Arc::new(Service::open(destination.clone(), watch, self.options.clone()));
        service.own(tokio::spawn(close_when_idle(Arc::downgrade(self), destination.clone(), Arc::downgrade(&service))));
        open.insert(destination, Used { service: service.clone(), at });
        service
    }

    /// How many services are open, and how many instances have a client.
    pub(crate) fn held(&self) -> (usize, usize) {
        let open = self.lock();
        (open.len(), open.values().map(|used| used.service.shared().clients_held()).sum())
    }

    /// Closes a service that was not used for the idle time; otherwise answers when that may be over. `None` once it is closed.
    fn close_if_idle(&self, destination: &Destination, service: &Weak<Service>) -> Option<Instant> {
        let mut open = self.lock();
        let used = open.get(destination).filter(|used| std::ptr::eq(Arc::as_ptr(&used.service), service.as_ptr()))?;
        match used.at.checked_add(self.options.idle) {
            Some(over) if over <= Instant::now() => {
                // Dropped outside of the lock.
                let closed = open.remove(destination);
                drop(open);
                drop(closed);
                None
            }
            Some(over) => Some(over),
            // Never, as far as a clock can tell.
            None => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Destination, Used>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until a service was not used for long, and closes it.
async fn close_when_idle(services: Weak<Services>, destination: Destination, service: Weak<Service>) {
    loop {
        let over = services.upgrade().and_then(|services| services.close_if_idle(&destination, &service));
        match over {
            Some(over) => sleep_until(over).await,
            None => return,
        }
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.lock().keys().map(|destination| destination.service.clone()).collect();
        f.debug_struct("Services")
            .field("backend", &self.backend.address())
            .field("open", &names)
            .finish_non_exhaustive()
    }
}
