//! Several registries as one: register in all of them, discover from all, or from one at a time.
//!
//! For fleets that move from one registry to another without a stop, and for those that want two. [`Multi`] is a [`Backend`] over others,
//! its sides, in their order; in a URL it is written as `multi: zookeeper://h1:2181 etcd://h2:2379`. What the sides are policed by is theirs:
//! each keeps its own set over its own outage (W4) and holds what shrinks sharply (W9). [`Multi`] decides which sets count.
//!
//! # Discovering
//! The [`Mode`] decides. What a side shows counts as follows, whatever the mode:
//!
//! | a side | its instances | the whole |
//! |---|---|---|
//! | loading | none yet; the first set waits for it, [`patience`](MultiOptions::patience) at most, and for longer as long as the others have nobody: an empty set is one that every side has confirmed | loading, then stale, and names it |
//! | live | as it says; who leaves it is gone from sides that are away, too | live |
//! | stale (away) | as they were, without those who left another, live side meanwhile | stale, names it, says since when and why |
//! | held by the brake | as it holds them; its registry answers | stale, names it |
//! | back after an outage | as it says; for [`away`](MultiOptions::away) it is believed less than a side that was there all the time, as what was written meanwhile may not have reached it yet | live |
//! | empty | none | live |
//! | closed by hand | none; it takes no part any more | as the others; a watch ends once all are closed |
//!
//! Of an id that several sides list the record of the first one counts, and of one that is live before one that is not: whoever drains while
//! one registry is away is seen to drain. Of two that were away, the one that was there last counts before one that has just come back, unless
//! that heard from the instance since. Ids are the identity of an instance (P3, P6), so a picker's statistics and hashes survive a switch of sides.
//!
//! # Registering
//! One [`Registration`] stands for one on each side, all with the same record. It is confirmed once every side that answers has the record,
//! and at least one has it; a side that does not answer within [`patience`](MultiOptions::patience) of another's confirmation keeps no service
//! from starting, and is registered in when it comes back (R4). The same holds for updates. What a side refuses for good, such as for a wrong
//! password, fails the first registration with an error that names the side, as a rollout should stop at its first instance; later it is tried
//! again for ever, and the state says so. It is [registered](crate::RegistrationState::Registered) if every side has the record as last updated,
//! otherwise reconnecting, with the sides that have not (R11). It is deregistered once it is gone from all (R2). A newer owner on one side
//! supersedes the whole (R6): it gives the others up, a moment later so that the newer owner can take them over.

mod blend;
mod choice;
mod compare;
mod follow;
mod joint;
mod side;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

pub use compare::{Difference, Report, compare};

use crate::engine::ended;
use crate::model::Key;
use crate::registry::{
    Backend, Command, Discovery, Feeds, Keeping, Opened, Registration, RegistrationState, Registry, Source, Watch,
};
use crate::store::Capabilities;
use crate::{CacheStatus, Error, ErrorKind, Instance, Result, ServiceNames, Snapshot, UrlOptions};
use blend::{Instances, Names};
use choice::LONGEST;
use follow::Follow;
use joint::{Joint, Joints};

/// From which sides is discovered. In all modes instances are registered in all sides that take registrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// From all: whoever is registered on any side is there. For moving, as nobody has to be on the same side as anybody else.
    #[default]
    Union,
    /// Each service from the first side that has instances of it; an outage changes nothing in that, so who comes or goes by another side
    /// meanwhile is not seen. What only the [disk](crate::DiskCache) remembers counts where no other side has instances.
    Prefer,
    /// From the first side whose registry answers: the next one once it was away for [`away`](MultiOptions::away), and the first again once
    /// that has answered for as long. Never from a side without instances while there are some.
    Failover,
}

/// How several registries are one.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MultiOptions {
    /// From which sides is discovered.
    pub mode: Mode,
    /// How long one side is waited for once another has answered: for a first set, and for the confirmation of a write. Default 2 s, more than
    /// connecting takes and less than what a caller waits for.
    pub patience: Duration,
    /// For how long a registry may be away before the next one is used, and has to be back before it is believed like one that was there all
    /// the time. Default 15 s: more than the longest wait between two repairs of a registration (10 s), and 5 s more than the default TTL. A
    /// lease begins anew when its server starts, and ends late: on etcd by an election (1 s), on ZooKeeper by a tick (2 s).
    pub away: Duration,
}

impl Default for MultiOptions {
    fn default() -> Self {
        Self { mode: Mode::default(), patience: Duration::from_secs(2), away: Duration::from_secs(15) }
    }
}

impl MultiOptions {
    /// Sets the mode.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how long one side is waited for once another has answered.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience.min(LONGEST);
        self
    }

    /// Sets for how long a registry may be away, and has to be back.
    #[must_use]
    pub fn with_away(mut self, away: Duration) -> Self {
        self.away = away.min(LONGEST);
        self
    }

    /// Reads the options `patience` and `away`.
    ///
    /// # Errors
    /// `InvalidInput` for a value that is malformed or above a day.
    pub fn from_url(mode: Mode, options: &mut UrlOptions) -> Result<Self> {
        let mut read = Self { mode, ..Self::default() };
        for (name, field) in [("patience", &mut read.patience), ("away", &mut read.away)] {
            if let Some(duration) = options.duration(name)? {
                if duration > LONGEST {
                    return Err(options.invalid(name, "is out of bounds; up to 1day is allowed"));
                }
                *field = duration;
            }
        }
        Ok(read)
    }
}

/// Several registries as one; see the [module](self).
///
/// ```
/// use discovery_core::memory::MemoryStore;
/// use discovery_core::multi::{Multi, MultiOptions};
/// use discovery_core::{Backend, Discovery, Instance, RegisterOptions, Registry};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> discovery_core::Result<()> {
/// let (old, new) = (MemoryStore::new(), MemoryStore::new());
/// let both = Multi::new(vec![old.connect(), new.connect()], MultiOptions::default())?;
/// let instance = Instance::builder("orders").endpoint("grpc://10.0.0.5:9000").build()?;
/// let registration = both.register(instance, RegisterOptions::default()).await?;
/// for registry in [old.connect(), new.connect()] {
///     assert_eq!(registry.snapshot("orders", std::time::Duration::from_secs(1)).await?.len(), 1);
/// }
/// # registration.deregister().await
/// # }
/// ```
#[derive(Debug)]
pub struct Multi {
    core: Arc<Core>,
}

/// What registrations and watches keep alive.
struct Core {
    sides: Vec<Arc<dyn Backend>>,
    options: MultiOptions,
    capabilities: Capabilities,
    feeds: Feeds<Self>,
    joints: Joints,
    /// Numbers registrations. Only distinctness matters, so any ordering does.
    serial: AtomicU64,
    /// Written by `close`, under the lock of `joints`, which orders it.
    closed: AtomicBool,
    runtime: Handle,
}

impl Multi {
    /// Makes one registry of several, the most preferred first.
    ///
    /// # Errors
    /// `InvalidInput` if there are fewer than two, or no Tokio runtime is running.
    pub fn new(sides: Vec<Arc<dyn Backend>>, options: MultiOptions) -> Result<Arc<Self>> {
        let invalid = |why: &str| Error::invalid("use", "several registries as one", why);
        let [first, _, ..] = &*sides else { return Err(invalid("there are fewer than two of them")) };
        let runtime =
            Handle::try_current().map_err(|_| invalid("there is no Tokio runtime here; call it inside one"))?;
        let registering = sides.iter().map(|side| side.capabilities()).filter(|side| side.registers);
        let read_only = Capabilities { backend: "multi", ..Capabilities::read_only(first.capabilities().backend) };
        let capabilities = registering.fold(read_only, |whole, side| Capabilities {
            registers: true,
            min_ttl: whole.min_ttl.max(side.min_ttl),
            max_ttl: whole.max_ttl.min(side.max_ttl),
            max_record: whole.max_record.min(side.max_record),
            lease_survives_reconnect: whole.lease_survives_reconnect && side.lease_survives_reconnect,
            lease_survives_restart: whole.lease_survives_restart && side.lease_survives_restart,
            ..whole
        });
        let (feeds, joints) = (Feeds::default(), Arc::new(Mutex::new(HashMap::new())));
        let (serial, closed) = (AtomicU64::new(1), AtomicBool::new(false));
        let core = Core { sides, options, capabilities, feeds, joints, serial, closed, runtime };
        Ok(Arc::new(Self { core: Arc::new(core) }))
    }

    /// The sides, in their order.
    pub fn sides(&self) -> &[Arc<dyn Backend>] {
        &self.core.sides
    }
}

impl Core {
    fn whole_address(&self) -> String {
        let sides: Vec<_> = self.sides.iter().map(|side| side.address()).collect();
        format!("multi: {}", sides.join(" "))
    }

    fn joints(&self) -> MutexGuard<'_, HashMap<Key, Joint>> {
        self.joints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("address", &self.whole_address()).finish_non_exhaustive()
    }
}

impl Source for Core {
    fn feeds(&self) -> &Feeds<Self> {
        &self.feeds
    }

    fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn address(&self) -> String {
        self.whole_address()
    }

    fn open_service(&self, service: &Arc<str>) -> Opened<Snapshot> {
        let watches = self.sides.iter().map(|side| (side.watch(service), side.address())).collect::<Vec<_>>();
        let blend = Instances::new(service.clone(), watches.len());
        Follow::open(watches, format!("service {service:?}"), self.options, blend)
    }

    fn open_names(&self) -> Opened<ServiceNames> {
        let watches = self.sides.iter().map(|side| (side.watch_services(), side.address())).collect();
        // A service is where its instances are, so where each is discovered from the first side that has it, all sides' names count.
        let mode = if self.options.mode == Mode::Prefer { Mode::Union } else { self.options.mode };
        Follow::open(watches, "the list of services".to_owned(), self.options.with_mode(mode), Names::default())
    }
}

impl Keeping for Core {
    fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, command: Command) -> Result<(), ()> {
        let mut joints = self.joints();
        match command {
            Command::Register { key, serial, instance, state, done } => {
                if self.closed.load(Ordering::Relaxed) {
                    return Err(());
                }
                let sides = self.sides.iter().filter(|side| side.capabilities().registers).cloned().collect();
                let joint = Joint::start(self, sides, (key.clone(), serial), instance, (state, done));
                if let Some(former) = joints.insert(key, joint) {
                    former.supersede();
                }
            }
            Command::Update { key, serial, instance, done } => match joints.get(&key) {
                Some(joint) => joint.update(serial, instance, done),
                None => _ = done.send(Err(ended(&key))),
            },
            Command::Remove { key, serial, done } => match joints.get(&key) {
                Some(joint) => joint.remove(serial, done),
                // It is gone already.
                None => _ = done.map(|done| done.send(Ok(()))),
            },
            // Closing goes by the sides.
            Command::Close { .. } => return Err(()),
        }
        Ok(())
    }

    fn trouble(&self, key: &Key) -> Option<Error> {
        self.joints().get(key)?.trouble()
    }

    fn address(&self) -> String {
        self.whole_address()
    }

    fn check_record(&self, instance: &Instance, operation: &'static str) -> Result<()> {
        crate::engine::check_record(&self.capabilities, &self.whole_address(), instance, operation)
    }
}

#[async_trait]
impl Registry for Multi {
    fn begin(&self, instance: Instance) -> Result<Registration> {
        Registration::begin(self.core.clone(), instance)
    }
}

impl Discovery for Multi {
    fn watch(&self, service: &str) -> Watch {
        Feeds::watch(&self.core, service)
    }

    fn watch_services(&self) -> Watch<ServiceNames> {
        Feeds::watch_names(&self.core)
    }
}

#[async_trait]
impl Backend for Multi {
    fn capabilities(&self) -> &Capabilities {
        &self.core.capabilities
    }

    fn address(&self) -> String {
        self.core.whole_address()
    }

    /// What the sides' caches did together.
    fn cache_status(&self) -> Option<CacheStatus> {
        let sides = self.core.sides.iter().filter_map(|side| side.cache_status());
        sides.reduce(|all, side| CacheStatus {
            written: all.written + side.written,
            failed: all.failed + side.failed,
            refused: all.refused + side.refused,
            failure: all.failure.or(side.failure),
        })
    }

    /// That of the side which answers first.
    async fn source_address(&self) -> Option<IpAddr> {
        let mut sides: FuturesUnordered<_> = self.core.sides.iter().map(|side| side.source_address()).collect();
        while let Some(address) = sides.next().await {
            if address.is_some() {
                return address;
            }
        }
        None
    }

    /// Closes all sides at once.
    async fn close(&self, deadline: Duration) -> Result<()> {
        let (core, end) = (&self.core, Instant::now() + deadline.min(LONGEST));
        core.feeds.close();
        let states: Vec<_> = {
            let joints = core.joints();
            core.closed.store(true, Ordering::Relaxed);
            joints.values().map(Joint::leave).collect()
        };
        let closed = join_all(core.sides.iter().map(|side| side.close(deadline))).await;
        let failed = core.sides.iter().zip(&closed).filter_map(|(side, closed)| Some((side, closed.as_ref().err()?)));
        let failed: Vec<_> = failed.map(|(side, error)| (side.address(), error)).collect();
        let failed = failed.iter().map(|(address, error)| (&**address, Some(*error)));
        if let Some(error) = named("close", &core.whole_address(), failed) {
            return Err(error);
        }
        // What is gone from all sides says so.
        for mut state in states {
            let ended =
                state.wait_for(|state| matches!(state, RegistrationState::Closed | RegistrationState::Superseded));
            // Nobody is left to say it if the task was gone already.
            let _ = timeout_at(end, ended).await;
        }
        Ok(())
    }
}

/// One error of several sides, each by its address; `None` if there are none.
fn named<'a>(
    operation: &'static str,
    subject: &str,
    causes: impl Iterator<Item = (&'a str, Option<&'a Error>)>,
) -> Option<Error> {
    let mut kind = None;
    let texts: Vec<_> = causes
        .map(|(address, cause)| {
            kind = kind.or(cause.map(Error::kind));
            match cause {
                Some(cause) => format!("{address}: {cause}"),
                None => format!("{address} has not answered yet"),
            }
        })
        .collect();
    let kind = kind.unwrap_or(ErrorKind::Unavailable);
    (!texts.is_empty()).then(|| Error::new(kind, operation, subject, texts.join("; ")))
}
