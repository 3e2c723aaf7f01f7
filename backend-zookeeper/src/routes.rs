//! Who is told of which node: the subscriptions of a session, by what they are about.
//!
//! A subscription gets a set of names to look at and nothing about them: many changes of one node are one name, and a slow reader costs the
//! names that changed, not the changes.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Routes {
    /// Whether the watches are lost, so that nobody subscribes to them any more.
    ended: bool,
    next: u64,
    /// By the name of the service's node, so that an event costs the same however many services are followed.
    services: HashMap<String, Vec<(u64, Arc<Route>)>>,
    all: Vec<(u64, Arc<Route>)>,
}

#[derive(Default)]
struct Route {
    news: Mutex<News>,
    wake: Notify,
}

#[derive(Default)]
struct News {
    ended: bool,
    names: BTreeSet<String>,
}

/// What to be told of; dropping it ends it.
pub(crate) struct Subscription {
    routes: Arc<Mutex<Routes>>,
    service: Option<String>,
    number: u64,
    route: Arc<Route>,
}

impl Routes {
    /// Tells of a record.
    pub(crate) fn tell_record(&self, service: &str, name: &str) {
        for (_, route) in self.services.get(service).into_iter().flatten() {
            route.tell(name);
        }
        for (_, route) in &self.all {
            route.tell(&format!("{service}/{name}"));
        }
    }

    /// Tells that records or services may have come or gone: under a service's node, or, without a name, under the root.
    pub(crate) fn tell_parent(&self, service: &str) {
        for (_, route) in self.services.get(service).into_iter().flatten() {
            route.tell("");
        }
        for (_, route) in &self.all {
            route.tell(service);
        }
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
        let services = mem::take(&mut self.services);
        for (_, route) in services.into_values().flatten().chain(mem::take(&mut self.all)) {
            lock(&route.news).ended = true;
            route.wake.notify_one();
        }
    }
}

impl Route {
    fn tell(&self, name: &str) {
        lock(&self.news).names.insert(name.to_owned());
        self.wake.notify_one();
    }
}

impl Subscription {
    /// Subscribes to the records of the service with this node's name, or to `{service}/{record}` of all; `None` once the watches are lost.
    pub(crate) fn open(routes: &Arc<Mutex<Routes>>, service: Option<&str>) -> Option<Self> {
        let mut open = lock(routes);
        if open.ended {
            return None;
        }
        open.next += 1;
        let (number, route) = (open.next, Arc::<Route>::default());
        match service {
            Some(service) => open.services.entry(service.to_owned()).or_default().push((number, route.clone())),
            None => open.all.push((number, route.clone())),
        }
        Some(Self { routes: routes.clone(), service: service.map(str::to_owned), number, route })
    }

    /// The names that changed since the last call; `None` once the connection was lost.
    pub(crate) async fn next(&mut self) -> Option<BTreeSet<String>> {
        loop {
            {
                let mut news = lock(&self.route.news);
                if news.ended {
                    return None;
                }
                if !news.names.is_empty() {
                    return Some(mem::take(&mut news.names));
                }
            }
            self.route.wake.notified().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut routes = lock(&self.routes);
        match &self.service {
            None => routes.all.retain(|(number, _)| *number != self.number),
            Some(service) => {
                if let Some(open) = routes.services.get_mut(service) {
                    open.retain(|(number, _)| *number != self.number);
                    if open.is_empty() {
                        routes.services.remove(service);
                    }
                }
            }
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
