//! The masters of a Cluster, each with a connection of its own: what happens to one is no matter for the others.
//!
//! A probe asks all of them. One that is lost or silent is taken out, its subscriptions end, and a task dials it again; the map is read
//! anew when it may be wrong. Only when none answers is everything given up and connected anew, by the engine's decision.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use discovery_core::{Backoff, Error, ErrorKind, Policy, Result};
use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::map::{self, Map, slot};
use crate::node::{Doubt, Node, Patience, PubSub};
use crate::settings::Way;

/// How long whatever may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Connecting to one server.
    dial: Duration,
    /// How long a server may be silent until it counts as lost.
    silence: Duration,
    /// How long a probe waits for the others once one has answered: the engine takes a slow probe for a dead link.
    pub(crate) glance: Duration,
    pub(crate) patience: Patience,
}

impl Bounds {
    pub(crate) fn new(policy: &Policy, turn: Duration) -> Self {
        let silence = policy.timeout.min(policy.ttl / 2);
        let patience = Patience { silence: policy.timeout, backoff: policy.backoff };
        Self { dial: turn / 2, silence, glance: silence / 6, patience }
    }
}

pub(crate) struct Cluster {
    masters: Arc<Masters>,
    /// Owned, so that it ends with the connections. Written by the probe, of which there is one at a time.
    mending: Mutex<Option<JoinHandle<()>>>,
}

struct Masters {
    way: Arc<Way>,
    bounds: Bounds,
    state: RwLock<State>,
}

struct State {
    map: Map,
    nodes: Vec<Arc<Node>>,
    missing: HashMap<String, Missing>,
}

/// A master that has slots and no connection.
struct Missing {
    cause: Error,
    backoff: Backoff,
    /// When it may be dialled again.
    dial: Instant,
}

impl Missing {
    fn new(cause: Error, bounds: Bounds) -> Self {
        Self { cause, backoff: Backoff::new(bounds.patience.backoff), dial: Instant::now() }
    }
}

impl Cluster {
    /// Reads the map on one server of the Cluster and connects to all masters that can be reached.
    pub(crate) async fn open(seed: &str, way: &Arc<Way>, bounds: Bounds) -> Result<Self> {
        let guide = within(bounds.dial, seed, Node::open(seed, way, PubSub::Sharded)).await?;
        let map = map::read(&guide).await?;
        drop(guide);
        if map.hosts().is_empty() {
            return Err(Error::new(ErrorKind::Unavailable, "connect to", seed, "no master of the Cluster has slots"));
        }
        let state = RwLock::new(State { map, nodes: Vec::new(), missing: HashMap::new() });
        let masters = Arc::new(Masters { way: way.clone(), bounds, state });
        let failed = masters.dial().await;
        if let Some(refusal) = failed.iter().find(|error| !error.is_retryable()) {
            return Err(refusal.clone());
        }
        match failed.into_iter().next() {
            Some(error) if masters.read().nodes.is_empty() => Err(error),
            _ => Ok(Self { masters, mending: Mutex::default() }),
        }
    }

    /// The master that has the keys of a stem.
    pub(crate) fn node(&self, operation: &'static str, stem: &str) -> Result<Arc<Node>> {
        let state = self.masters.read();
        let unavailable = |why: String| Error::new(ErrorKind::Unavailable, operation, stem, why);
        let host = state.map.host(slot(stem));
        let host = host.ok_or_else(|| unavailable("no master of the Cluster has its slot".to_owned()))?;
        state.nodes.iter().find(|node| node.host == host).cloned().ok_or_else(|| {
            let cause = state.missing.get(host).map_or(String::new(), |missing| format!(": {}", missing.cause));
            unavailable(format!("its master {host} cannot be reached{cause}"))
        })
    }

    /// Any of the masters.
    pub(crate) fn first(&self) -> Option<Arc<Node>> {
        self.masters.read().nodes.first().cloned()
    }

    /// Asks all masters for an answer, and has mended what is wrong with some of them.
    ///
    /// # Errors
    /// If none answers; as long as all are silent it waits.
    pub(crate) async fn ping(&self) -> Result<()> {
        let mut silent = self.masters.read().nodes.clone();
        let mut asked: FuturesUnordered<_> =
            silent.iter().cloned().map(|node| async move { (node.ping().await, node) }).collect();
        let (mut end, mut last) = (None, None);
        loop {
            let next = match end {
                None => asked.next().await,
                Some(end) => timeout_at(end, asked.next()).await.ok().flatten(),
            };
            let Some((answer, node)) = next else { break };
            silent.retain(|other| !Arc::ptr_eq(other, &node));
            match answer {
                Ok(()) => _ = end.get_or_insert_with(|| Instant::now() + self.masters.bounds.glance),
                Err(error) => {
                    self.masters.lose(&node, &error);
                    last = Some(error);
                }
            }
        }
        if end.is_none() {
            let none = || Error::new(ErrorKind::Unavailable, "reach", "the Cluster", "no master is connected");
            return Err(last.unwrap_or_else(none));
        }
        self.mend(silent);
        Ok(())
    }

    /// Starts to mend what has to be mended, unless that is being done.
    fn mend(&self, silent: Vec<Arc<Node>>) {
        let mut mending = self.mending.lock().unwrap_or_else(PoisonError::into_inner);
        if mending.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if !silent.is_empty() || self.masters.is_amiss() {
            let masters = self.masters.clone();
            *mending = Some(tokio::spawn(async move { masters.mend(silent).await }));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mending = self.mending.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = mending.take() {
            task.abort();
        }
    }
}

impl Masters {
    fn is_amiss(&self) -> bool {
        let (state, now) = (self.read(), Instant::now());
        state.nodes.iter().any(|node| node.doubt().is_some())
            || state.missing.values().any(|missing| missing.dial <= now)
    }

    async fn mend(&self, silent: Vec<Arc<Node>>) {
        let listen = join_all(silent.iter().map(async |node| {
            if let Err(error) = within(self.bounds.silence, &node.host, node.ping()).await {
                self.lose(node, &error);
            }
        }));
        let reach = async {
            self.read_map(&silent).await;
            self.dial().await;
        };
        join(listen, reach).await;
    }

    /// Reads the map anew, on the server that is likeliest to know it.
    async fn read_map(&self, silent: &[Arc<Node>]) {
        let mut guides = self.read().nodes.clone();
        guides.retain(|node| silent.iter().all(|other| !Arc::ptr_eq(other, node)));
        // Who redirects knows better, and who says that the Cluster is down may be cut off from it.
        guides.sort_by_key(|node| match node.doubt() {
            Some(Doubt::Moved) => 0,
            None => 1,
            Some(Doubt::Down) => 2,
        });
        for guide in guides {
            match within(self.bounds.glance, &guide.host, map::read(&guide)).await {
                Ok(map) if !map.hosts().is_empty() => return self.adopt(map),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "could not read the Cluster's map"),
            }
        }
    }

    fn adopt(&self, map: Map) {
        let mut state = self.write();
        state.nodes.iter().for_each(|node| node.trust());
        if state.map == map {
            return;
        }
        tracing::info!("the Cluster's slots have moved; the masters that have them are used");
        let hosts = map.hosts();
        state.map = map;
        state.missing.retain(|host, _| hosts.contains(host));
        // Where a slot has left a master that keeps others, that master says so to whoever listens there.
        for node in state.nodes.extract_if(.., |node| !hosts.contains(&node.host)) {
            node.end();
        }
    }

    /// Connects to the masters that are not connected, and returns what failed.
    async fn dial(&self) -> Vec<Error> {
        let now = Instant::now();
        let hosts: Vec<_> = {
            let state = self.read();
            let is_due = |host: &String| {
                state.nodes.iter().all(|node| node.host != *host)
                    && state.missing.get(host).is_none_or(|missing| missing.dial <= now)
            };
            state.map.hosts().into_iter().filter(is_due).collect()
        };
        let dialled = join_all(hosts.iter().map(async |host| {
            // One that is stopped still accepts connections; only an answer counts.
            within(self.bounds.dial, host, Node::ready(host, &self.way, PubSub::Sharded)).await
        }));
        let mut failed = Vec::new();
        for (host, result) in hosts.iter().zip(dialled.await) {
            let mut state = self.write();
            match result {
                Ok(node) => {
                    if state.missing.remove(host).is_some() {
                        tracing::info!(host, "a master of the Cluster answers again");
                    }
                    state.nodes.push(Arc::new(node));
                }
                Err(error) => {
                    let missing = state.missing.entry(host.clone()).or_insert_with(|| {
                        tracing::warn!(%error, "a master of the Cluster cannot be reached; the others are used");
                        Missing::new(error.clone(), self.bounds)
                    });
                    missing.cause = error.clone();
                    missing.dial = Instant::now() + missing.backoff.next(error.is_retryable());
                    failed.push(error);
                }
            }
        }
        failed
    }

    /// Takes a master out and ends its subscriptions.
    fn lose(&self, node: &Arc<Node>, error: &Error) {
        node.end();
        let mut state = self.write();
        let before = state.nodes.len();
        state.nodes.retain(|other| !Arc::ptr_eq(other, node));
        if state.nodes.len() < before {
            tracing::warn!(%error, "a master of the Cluster was lost; the others are used");
            state.missing.insert(node.host.clone(), Missing::new(error.clone(), self.bounds));
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn within<T>(limit: Duration, host: &str, request: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(limit, request).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::DeadlineExceeded, "reach", host, format!("no answer within {limit:?}")))
    })
}
