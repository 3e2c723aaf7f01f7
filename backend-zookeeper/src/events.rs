//! One recursive watch for all subscriptions of a session.
//!
//! The watch says which node changed and nothing about it, so a subscription gets a set of names to look at: many changes of one node are
//! one name, and a slow reader costs the names that changed, not the changes.
//!
//! The client loses persistent watches at every reconnect. So whatever happens to the connection ends all subscriptions, and the next one
//! arms the watch again. A watch needs no node to exist, so missing parents are no matter.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use zookeeper_client::{AddWatchMode, Client, Error as ClientError, EventType, PersistentWatcher};

/// Arms the watch with the first subscription, and again with the next one after a reconnect.
pub(crate) struct Events {
    client: Client,
    root: String,
    armed: tokio::sync::Mutex<Option<Armed>>,
}

struct Armed {
    routes: Arc<Mutex<Routes>>,
    /// Owned, so that it ends with the session.
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Routes {
    /// Whether the watch is lost, so that nobody subscribes to it any more.
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

impl Events {
    pub(crate) fn new(client: Client, root: &str) -> Self {
        Self { client, root: root.to_owned(), armed: tokio::sync::Mutex::new(None) }
    }

    /// Subscribes to the records of the service with this node's name, or to `{service}/{record}` of all.
    ///
    /// When it returns, the server watches: what is read from then on misses nothing.
    pub(crate) async fn subscribe(&self, service: Option<&str>) -> Result<Subscription, ClientError> {
        let mut armed = self.armed.lock().await;
        if let Some(armed) = &*armed
            && let Some(subscription) = Subscription::open(&armed.routes, service)
        {
            return Ok(subscription);
        }
        // The old watch is taken away first, so that its removal does not reach the new one.
        *armed = None;
        let watcher = self.client.watch(&self.root, AddWatchMode::PersistentRecursive).await?;
        let routes = Arc::default();
        let subscription = Subscription::open(&routes, service);
        let task = tokio::spawn(pump(watcher, format!("{}/", self.root), routes.clone()));
        *armed = Some(Armed { routes, task });
        subscription.ok_or(ClientError::ConnectionLoss)
    }
}

/// Passes events on until something happens to the session.
async fn pump(mut watcher: PersistentWatcher, root: String, routes: Arc<Mutex<Routes>>) {
    loop {
        let event = watcher.changed().await;
        if event.event_type == EventType::Session {
            break;
        }
        if let Some(path) = event.path.strip_prefix(&root) {
            lock(&routes).tell(path);
        }
    }
    // The watch is given up before anybody can arm the next one.
    drop(watcher);
    lock(&routes).end();
}

impl Routes {
    fn tell(&self, path: &str) {
        // The nodes of services hold nothing, and what lies deeper is another namespace's.
        let Some((service, name)) = path.split_once('/').filter(|(_, name)| !name.contains('/')) else { return };
        for (_, route) in self.services.get(service).into_iter().flatten() {
            route.tell(name);
        }
        for (_, route) in &self.all {
            route.tell(path);
        }
    }

    fn end(&mut self) {
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
    fn open(routes: &Arc<Mutex<Routes>>, service: Option<&str>) -> Option<Self> {
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

impl Drop for Armed {
    fn drop(&mut self) {
        self.task.abort();
        lock(&self.routes).end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
