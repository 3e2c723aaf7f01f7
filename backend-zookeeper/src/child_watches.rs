//! One-shot watches for all subscriptions of a session, on servers without recursive ones (before 3.6).
//!
//! Whatever is read with a watch is watched from that very read on, until the watch fires. A watch that stands already is not armed twice.
//!
//! A watch that stands is never given up before it fires or the session ends: servers of 3.4 cannot take one away, and close the
//! connection when they are asked to. So the requests are made by a task of the session, and a subscription that goes away only stops
//! listening. The next one uses what it left.
//!
//! The client arms these watches again by itself when it reconnects, and the server tells then what was missed. Nevertheless a lost
//! connection ends all subscriptions, as for recursive watches, so that whoever follows reads anew. More than 128 KiB of watched paths
//! would make the client give up its session on a reconnect. So beyond a bound nothing is watched, and reconciliation finds what changes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use zookeeper_client::{Client, Error as ClientError, EventType, OneshotWatcher, Stat, StateWatcher};

use crate::routes::{Routes, Subscription, lock};

/// Bytes of watched paths. The client's bound is 131,072.
const PATHS: usize = 120 * 1024;
/// Bytes of the paths of records among them, so that there is always room for the children of services.
const RECORDS: usize = 96 * 1024;

/// Arms watches, and tells the subscriptions of those that fire.
pub(crate) struct ChildWatches {
    client: Client,
    shared: Arc<Mutex<Shared>>,
    orders: mpsc::UnboundedSender<Order>,
    /// Owned, so that it ends with the session. The last field: while a client is left, ending the task would take its watches away.
    _pump: Pump,
}

/// A request with a watch, which ends when the watch has fired or was not armed.
type Order = BoxFuture<'static, (Target, bool)>;

struct Pump(JoinHandle<()>);

struct Shared {
    /// What the paths of services begin with.
    root: String,
    /// The subscriptions of this connection.
    routes: Arc<Mutex<Routes>>,
    /// What the server has confirmed to watch, and has not told of since.
    armed: HashSet<Target>,
    /// Bytes of the paths that are watched or about to be.
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Target {
    /// Which children a node has.
    Children(String),
    /// A node's data, and whether it is there.
    Node(String),
}

impl ChildWatches {
    pub(crate) fn new(client: Client, root: &str) -> Self {
        let (root, routes, armed) = (format!("{root}/"), Arc::default(), HashSet::new());
        let shared = Arc::new(Mutex::new(Shared { root, routes, armed, bytes: 0 }));
        let (orders, ordered) = mpsc::unbounded_channel();
        let task = tokio::spawn(pump(client.state_watcher(), ordered, shared.clone()));
        Self { client, shared, orders, _pump: Pump(task) }
    }

    /// Subscribes to what is read with a watch below the service's node of this name, or below the root.
    pub(crate) fn subscribe(&self, service: Option<&str>) -> Result<Subscription, ClientError> {
        let routes = lock(&self.shared).routes.clone();
        Subscription::open(&routes, service).ok_or(ClientError::ConnectionLoss)
    }

    /// Lists the nodes under a parent, and when they changed last; from then on it is told if one comes or goes.
    pub(crate) async fn children(&self, path: &str) -> Result<(Vec<String>, Stat), ClientError> {
        let Some(target) = self.reserve(Target::Children(path.to_owned())) else {
            return self.client.get_children(path).await;
        };
        let request = |client: Client, path: String| async move {
            let (names, stat, watcher) = client.get_and_watch_children(&path).await?;
            Ok(((names, stat), watcher))
        };
        self.order(target, request(self.client.clone(), path.to_owned())).await
    }

    /// Reads a node; from then on it is told if it is written or deleted.
    pub(crate) async fn data(&self, path: &str) -> Result<(Vec<u8>, Stat), ClientError> {
        let Some(target) = self.reserve(Target::Node(path.to_owned())) else {
            return self.client.get_data(path).await;
        };
        let request = |client: Client, path: String| async move {
            let (data, stat, watcher) = client.get_and_watch_data(&path).await?;
            Ok(((data, stat), watcher))
        };
        self.order(target, request(self.client.clone(), path.to_owned())).await
    }

    /// Asks whether a node is there; from then on it is told if that changes.
    pub(crate) async fn is_there(&self, path: &str) -> Result<bool, ClientError> {
        let Some(target) = self.reserve(Target::Node(path.to_owned())) else {
            return Ok(self.client.check_stat(path).await?.is_some());
        };
        let request = |client: Client, path: String| async move {
            let (stat, watcher) = client.check_and_watch_stat(&path).await?;
            Ok((stat.is_some(), watcher))
        };
        self.order(target, request(self.client.clone(), path.to_owned())).await
    }

    /// Takes a node's watches for lost and has it looked at again, with new ones. Those that were late after all do no harm.
    pub(crate) fn doubt(&self, path: &str) {
        let mut shared = lock(&self.shared);
        shared.armed.remove(&Target::Children(path.to_owned()));
        shared.armed.remove(&Target::Node(path.to_owned()));
        shared.tell(path);
    }

    /// Makes room for a watch; `None` if it stands already, or there is no room for it.
    fn reserve(&self, target: Target) -> Option<Target> {
        let mut shared = lock(&self.shared);
        let bytes = shared.bytes + target.path().len();
        if bytes > target.bound() || shared.armed.contains(&target) {
            return None;
        }
        shared.bytes = bytes;
        Some(target)
    }

    /// Has a request made that arms a watch. Going away while it is under way is no matter: the watch stands all the same.
    async fn order<T: Send + 'static>(
        &self,
        target: Target,
        request: impl Future<Output = Result<(T, OneshotWatcher), ClientError>> + Send + 'static,
    ) -> Result<T, ClientError> {
        let (sender, answer) = oneshot::channel();
        let shared = self.shared.clone();
        let order = async move {
            let (answer, watcher) = match request.await {
                Ok((answer, watcher)) => {
                    lock(&shared).armed.insert(target.clone());
                    (Ok(answer), Some(watcher))
                }
                Err(error) => (Err(error), None),
            };
            // Whoever asked may be gone.
            _ = sender.send(answer);
            match watcher {
                Some(watcher) => (target, watcher.changed().await.event_type != EventType::Session),
                None => (target, false),
            }
        };
        self.orders.send(Box::pin(order)).map_err(|_| ClientError::ConnectionLoss)?;
        answer.await.unwrap_or(Err(ClientError::ConnectionLoss))
    }
}

/// Drives the requests, and tells of the watches that fire, until the session has ended.
async fn pump(mut states: StateWatcher, mut ordered: mpsc::UnboundedReceiver<Order>, shared: Arc<Mutex<Shared>>) {
    let mut orders = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(order) = ordered.recv() => orders.push(order),
            Some((target, fired)) = orders.next() => lock(&shared).settle(&target, fired),
            state = states.changed() => {
                let mut shared = lock(&shared);
                lock(&shared.routes).end();
                if state.is_terminated() {
                    return;
                }
                shared.routes = Arc::default();
            }
        }
    }
}

impl Shared {
    /// A watch stands no more. In one step with telling of it, so that whoever finds it standing is told.
    fn settle(&mut self, target: &Target, fired: bool) {
        self.bytes -= target.path().len();
        if fired {
            self.armed.remove(target);
            self.tell(target.path());
        }
    }

    fn tell(&self, path: &str) {
        let routes = lock(&self.routes);
        match path.strip_prefix(&self.root).map(|path| path.split_once('/').ok_or(path)) {
            Some(Ok((service, name))) => routes.tell_record(service, name),
            Some(Err(service)) => routes.tell_parent(service),
            None => routes.tell_parent(""), // The root itself.
        }
    }
}

impl Target {
    fn path(&self) -> &str {
        match self {
            Self::Children(path) | Self::Node(path) => path,
        }
    }

    fn bound(&self) -> usize {
        match self {
            Self::Children(_) => PATHS,
            Self::Node(_) => RECORDS,
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}
