//! One recursive watch for all subscriptions of a session.
//!
//! The watch says which node changed and nothing about it.
//!
//! The client loses persistent watches at every reconnect. So whatever happens to the connection ends all subscriptions, and the next one
//! arms the watch again. A watch needs no node to exist, so missing parents are no matter.

use std::sync::{Arc, Mutex};

use tokio::task::JoinHandle;
use zookeeper_client::{AddWatchMode, Client, Error as ClientError, EventType, PersistentWatcher};

use crate::routes::{Routes, Subscription, lock};

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
        // The nodes of services hold nothing, and what lies deeper is another namespace's.
        let path = event.path.strip_prefix(&root).and_then(|path| path.split_once('/'));
        if let Some((service, name)) = path.filter(|(_, name)| !name.contains('/')) {
            lock(&routes).tell_record(service, name);
        }
    }
    // The watch is given up before anybody can arm the next one.
    drop(watcher);
    lock(&routes).end();
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.task.abort();
        lock(&self.routes).end();
    }
}
