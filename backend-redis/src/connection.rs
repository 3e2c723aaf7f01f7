//! The connection: who the master is, and the next host when one fails.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use discovery_core::{Error, ErrorKind, Policy, RegistryUrl, Result};
use tokio::time::timeout;

use crate::live::Live;
use crate::node::{Node, PubSub};
use crate::settings::{Settings, Topology};
use crate::{cluster, sentinel};

/// The hosts, and the connection that works.
pub(crate) struct Connection {
    settings: Settings,
    /// How long one host may take, so that the last one still gets its turn within the policy's deadline.
    patience: Duration,
    /// The host to try next. Only one task connects, so any ordering does.
    next: AtomicUsize,
    current: RwLock<Option<Arc<Live>>>,
    address: String,
}

impl Connection {
    pub(crate) fn new(url: &RegistryUrl, settings: Settings, policy: &Policy) -> Self {
        let hosts = u32::try_from(settings.hosts.len()).unwrap_or(u32::MAX);
        let patience = (policy.connect_timeout / hosts).min(policy.timeout);
        let (next, current) = (AtomicUsize::new(0), RwLock::new(None));
        Self { settings, patience, next, current, address: url.to_string() }
    }

    /// The address without credentials.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The connection that works, or worked last.
    pub(crate) fn live(&self) -> Result<Arc<Live>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        current.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "reach", &*self.address, "no connection is open at the moment")
        })
    }

    pub(crate) fn source_address(&self) -> Option<IpAddr> {
        self.live().ok()?.source()
    }

    /// Gives the connection up and tries each host once, beginning after the one that failed.
    pub(crate) async fn connect(&self) -> Result<()> {
        if self.replace(None).is_some() {
            // The host in use has failed; asking it again first would cost what is left of the TTL.
            self.next.fetch_add(1, Ordering::Relaxed);
        }
        let hosts = &self.settings.hosts;
        let mut last = None;
        for _ in 0..hosts.len() {
            let at = self.next.load(Ordering::Relaxed) % hosts.len();
            let error = match timeout(self.patience, self.open(&hosts[at])).await {
                Ok(Ok(live)) => {
                    self.replace(Some(Arc::new(live)));
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(_) => Error::new(
                    ErrorKind::DeadlineExceeded,
                    "connect to",
                    &*hosts[at],
                    format!("no answer within {:?}", self.patience),
                ),
            };
            self.next.store(at + 1, Ordering::Relaxed);
            // A refusal says more than an unreachable host, and no other host would decide differently.
            if !error.is_retryable() {
                return Err(error);
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Internal, "connect to", &*self.address, "there is no host")))
    }

    async fn open(&self, host: &str) -> Result<Live> {
        let Settings { topology, way, sentinel_way, .. } = &self.settings;
        match topology {
            Topology::Hosts => Ok(Live::one(Node::ready(host, way, PubSub::Plain).await?)),
            Topology::Sentinel(name) => {
                let master = sentinel::master(host, sentinel_way, name).await?;
                Ok(Live::one(Node::ready(&master, way, PubSub::Plain).await?))
            }
            Topology::Cluster => cluster::open(host, way, self.patience / 2).await,
        }
    }

    fn replace(&self, live: Option<Arc<Live>>) -> Option<Arc<Live>> {
        std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), live)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings hold the password.
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}
