//! The engine: the policy of the contracts, written once, over any [`Store`].
//!
//! - [`link`] keeps one working connection: connects, probes, reconnects.
//! - [`keeper`] keeps registrations registered.
//! - [`feed`] joins full sets and notifications into views; [`instances`] and [`names`] are what it keeps of them.
//! - [`cache`] keeps the last good views on disk, for a start without the store.

mod backoff;
mod cache;
mod decoding;
mod feed;
mod instances;
mod keeper;
mod ledger;
mod link;
mod model;
mod names;
mod parts;
mod policy;
mod throttle;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

pub use backoff::Backoff;
pub use cache::{CacheStatus, DiskCache};
pub(crate) use keeper::ended;
pub use policy::{Brake, Policy};

use crate::model::{Key, encode};
use crate::registry::{Backend, Command, Discovery, Feeds, Keeping, Opened, Registration, Registry, Source, Watch};
use crate::store::{Capabilities, Scope, Store};
use crate::{Error, ErrorKind, Instance, Result, ServiceNames, Snapshot};
use feed::Feed;
use instances::Instances;
use keeper::Keeper;
use link::{Link, LinkState};
use model::Model;
use names::Names;

/// A registry over a store: what every backend hands out.
///
/// It keeps one connection, one lease and one subscription for each watched service, all owned by background tasks that end with the
/// last handle: this engine, its registrations and its watches (R10).
#[derive(Debug)]
pub struct Engine {
    core: Arc<EngineCore>,
}

/// What registrations and watches keep alive of an engine.
pub(crate) struct EngineCore {
    link: Arc<Link>,
    feeds: Feeds<Self>,
    commands: mpsc::UnboundedSender<Command>,
    /// Numbers registrations. Only distinctness matters, so any ordering does.
    serial: AtomicU64,
    runtime: Handle,
    supervisor: AbortHandle,
}

impl Engine {
    /// Starts an engine; connecting happens in the background, so a store that is away is no error (W13).
    ///
    /// # Errors
    /// `InvalidInput` if the policy's TTL is outside the store's bounds, or if no Tokio runtime is running.
    pub fn start(store: Arc<dyn Store>, policy: Policy) -> Result<Arc<Self>> {
        policy.check(store.capabilities())?;
        let runtime = Handle::try_current().map_err(|_| {
            Error::invalid("start", store.address(), "there is no Tokio runtime here; connect from inside one")
        })?;
        let link = Arc::new(Link::new(store, policy, &runtime));
        let (commands, inbox) = mpsc::unbounded_channel();
        let supervisor = runtime.spawn(link.clone().supervise()).abort_handle();
        // It ends by itself once the last sender of commands is gone.
        runtime.spawn(Keeper::new(link.clone(), inbox).run());
        let core =
            EngineCore { link, feeds: Feeds::default(), commands, serial: AtomicU64::new(1), runtime, supervisor };
        Ok(Arc::new(Self { core: Arc::new(core) }))
    }
}

impl EngineCore {
    fn open<M: Model>(&self, scope: Scope, model: M) -> Opened<M::View> {
        let (feed, receiver) = Feed::new(self.link.clone(), scope, model);
        (receiver, Box::pin(feed.run()))
    }
}

impl Source for EngineCore {
    fn feeds(&self) -> &Feeds<Self> {
        &self.feeds
    }

    fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn address(&self) -> String {
        self.link.store.address()
    }

    fn open_service(&self, service: &Arc<str>) -> Opened<Snapshot> {
        let model = Instances::new(service.clone(), self.link.clone(), self.link.policy.hold());
        self.open(Scope::Service(service.clone()), model)
    }

    fn open_names(&self) -> Opened<ServiceNames> {
        self.open(Scope::Names, Names::new(self.link.store.clone()))
    }
}

impl Keeping for EngineCore {
    fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, command: Command) -> Result<(), ()> {
        self.commands.send(command).map_err(|_| ())
    }

    fn trouble(&self, _key: &Key) -> Option<Error> {
        self.link.trouble()
    }

    fn address(&self) -> String {
        self.link.store.address()
    }

    fn check_record(&self, instance: &Instance, operation: &'static str) -> Result<()> {
        check_record(self.link.store.capabilities(), &self.link.store.address(), instance, operation)
    }
}

/// Refuses what a store would refuse, before it is sent (R12).
pub(crate) fn check_record(
    capabilities: &Capabilities,
    address: &str,
    instance: &Instance,
    operation: &'static str,
) -> Result<()> {
    let key = instance.key().to_string();
    if !capabilities.registers {
        let why = format!("{} only lists fixed addresses; nothing can be registered there", capabilities.backend);
        return Err(Error::new(ErrorKind::Unsupported, operation, key, why));
    }
    let (size, limit) = (encode(instance).len(), capabilities.max_record);
    if size > limit {
        let why = format!("its record has {size} bytes and {address} takes {limit}; shorten the metadata");
        return Err(Error::new(ErrorKind::TooLarge, operation, key, why));
    }
    Ok(())
}

impl Drop for EngineCore {
    fn drop(&mut self) {
        // The keeper sees its channel close, removes what it can and ends by itself.
        self.supervisor.abort();
    }
}

impl fmt::Debug for EngineCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineCore").field("address", &self.link.store.address()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Registry for Engine {
    fn begin(&self, instance: Instance) -> Result<Registration> {
        Registration::begin(self.core.clone(), instance)
    }
}

impl Discovery for Engine {
    fn watch(&self, service: &str) -> Watch {
        Feeds::watch(&self.core, service)
    }

    fn watch_services(&self) -> Watch<ServiceNames> {
        Feeds::watch_names(&self.core)
    }
}

#[async_trait]
impl Backend for Engine {
    fn capabilities(&self) -> &Capabilities {
        self.core.link.store.capabilities()
    }

    fn address(&self) -> String {
        self.core.link.store.address()
    }

    fn cache_status(&self) -> Option<CacheStatus> {
        self.core.link.cache.as_ref().map(cache::Cache::status)
    }

    async fn source_address(&self) -> Option<IpAddr> {
        let link = &self.core.link;
        let up = async {
            let mut state = link.subscribe();
            state.wait_for(|state| matches!(state, LinkState::Up(_))).await.is_ok()
        };
        // What is known without the store is known at once.
        match link.store.source_address() {
            Some(address) => Some(address),
            None => {
                tokio::time::timeout(link.policy.connect_timeout, up).await.ok()?;
                link.store.source_address()
            }
        }
    }

    async fn close(&self, deadline: Duration) -> Result<()> {
        let core = &self.core;
        core.feeds.close();
        let (done, answer) = oneshot::channel();
        if core.send(Command::Close { done }).is_err() {
            return Ok(()); // It was closed before.
        }
        // After an error the keeper goes on removing, and another call waits for it again. It ends with the last handle.
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(result)) => {
                core.supervisor.abort();
                result
            }
            Ok(Err(_)) => Ok(()), // Another call saw the end first.
            Err(_) => {
                let why =
                    core.link.trouble().map_or_else(String::new, |cause| format!("; the last failure was: {cause}"));
                Err(Error::new(
                    ErrorKind::DeadlineExceeded,
                    "close",
                    core.link.store.address(),
                    format!("not everything could be removed within {deadline:?}; the TTL removes it{why}"),
                ))
            }
        }
    }
}
