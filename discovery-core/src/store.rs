//! What a backend implements: one store's answers and gap signals, and no policy.
//!
//! A backend speaks to its store. When to try again, how long to wait, what to keep while the store is away, and what a caller sees
//! is decided once, by the [`Engine`](crate::Engine) that drives a [`Store`].
//!
//! Every call is made under a deadline by the engine: dropping the future must be safe, and the outcome of a dropped write is treated
//! as unknown. No method retries, sleeps or reconnects by itself, except [`connect`](Store::connect), which tries the hosts it knows once.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use crate::hosts::{Hosts, source_towards};
use crate::model::Key;
pub use crate::stamps::Stamps;
use crate::{Error, Result};

/// What a store can do and where its limits are; the conformance suite asserts each.
#[derive(Debug, Clone)]
pub struct Capabilities {
    /// The name of the backend, such as `etcd`.
    pub backend: &'static str,
    /// Whether instances can be registered at all.
    pub registers: bool,
    /// The shortest TTL that the store grants.
    pub min_ttl: Duration,
    /// The longest TTL that the store grants.
    pub max_ttl: Duration,
    /// The largest record in bytes.
    pub max_record: usize,
    /// Whether a lease outlives the connection it was granted on, so that a reconnect writes nothing (R5).
    pub lease_survives_reconnect: bool,
    /// Whether a lease outlives a restart of the store that kept its data.
    pub lease_survives_restart: bool,
}

impl Capabilities {
    /// The capabilities of a backend where nothing can be registered.
    pub fn read_only(backend: &'static str) -> Self {
        Self {
            backend,
            registers: false,
            min_ttl: Duration::ZERO,
            max_ttl: Duration::MAX,
            max_record: usize::MAX,
            lease_survives_reconnect: true,
            lease_survives_restart: true,
        }
    }
}

/// A lease or session: while it is renewed, the records written with it stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The store's name for it.
    pub id: u64,
    /// The TTL that was granted, which may differ from the one asked for.
    pub ttl: Duration,
}

/// The answer to a renewal.
#[derive(Debug, Clone)]
pub enum Renewal {
    /// The lease holds for another TTL.
    Held(Duration),
    /// It holds for another TTL, but the records of these keys could not be renewed: where they are, nothing answers.
    Partly {
        /// The TTL that was granted.
        ttl: Duration,
        /// The keys.
        failed: Vec<Key>,
        /// What happened to the last of them.
        cause: Error,
    },
    /// The store does not know the lease any more; everything written with it is gone or will be.
    Lost,
}

/// Who wrote a record: the lease, and what else the store needs to recognise its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The lease that the record hangs on.
    pub lease: Lease,
    /// The store's own mark, such as a created path; empty where the lease says it all.
    pub mark: Arc<str>,
}

/// The answer to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The record stands and others can read it.
    Done(Owner),
    /// The record is not this owner's any more; nothing was written (R6). The lease is the one that it hangs on now, if it still stands:
    /// the engine knows its own former ones, which a store that was restored from a backup knows again.
    Superseded(Option<u64>),
    /// The lease is gone; nothing was written.
    LeaseLost,
}

/// What an audit found out about the records that a lease should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// Records that should be there and are not, or are not as they were written, or do not hang on the lease. Those that could not be asked about are not among them.
    pub missing: Vec<Key>,
    /// Records that hang on the lease and should not be there, such as those of a write that came late.
    pub orphans: Vec<Key>,
}

/// What a subscription is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The records of one service.
    Service(Arc<str>),
    /// The keys of all services; values are not needed.
    Names,
}

/// A record as the store holds it, not yet believed.
#[derive(Debug, Clone)]
pub struct RawRecord {
    /// The key as text, in the layout of [`KeySpace`](crate::KeySpace).
    pub key: String,
    /// The revision of the record's last change.
    pub revision: u64,
    /// The value; may be empty for [`Scope::Names`].
    pub value: Vec<u8>,
}

/// One notification.
#[derive(Debug, Clone)]
pub enum RawChange {
    /// A record was written.
    Put(RawRecord),
    /// A record is gone: its key, and the revision of its removal.
    Delete(String, u64),
}

impl RawChange {
    /// The revision of the change.
    pub fn revision(&self) -> u64 {
        match self {
            Self::Put(record) => record.revision,
            Self::Delete(_, at) => *at,
        }
    }
}

/// A cheap summary of a scope, compared with what the notifications led to (W8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    /// The revision at which it was made.
    pub revision: u64,
    /// How many records there are.
    pub count: usize,
    /// The keys of records that changed after the revision that was asked for, each with the revision of its change. More than those
    /// may be listed; none of them may be missing. A store that cannot tell which changed lists its records a part each time, and says
    /// after how many times all have been listed.
    pub changed: Vec<(String, u64)>,
}

/// Where [`Store::follow`] delivers. Its methods return at once and never fail.
pub trait Sink: Send + Sync {
    /// Some records of the set that is being read, so that what they say is understood while others are on their way. Nobody sees them
    /// before the set is [`full`](Self::full); of a key that is given twice the later record counts.
    fn part(&self, records: Vec<RawRecord>);
    /// What was given in parts is the whole set at one revision, once the changes made while it was read are applied. The first one of a
    /// [`Store::follow`] is compared across a gap (W2, W9); a later one is a change seen live, for stores that read sets anew on each
    /// notification. What was given in parts by a `follow` that returned before this is forgotten. No [`changes`](Self::changes) come between
    /// a part and this.
    fn full(&self, revision: u64, since: Vec<RawChange>);
    /// Notifications, in the store's order where it has one.
    fn changes(&self, revision: u64, changes: Vec<RawChange>);
}

/// One store, as an [`Engine`](crate::Engine) drives it.
///
/// Implemented by the authors of backends, called by the engine alone. What no implementation may ever do:
/// deliver a set that is not complete at its revision, lose a change between [`Sink::full`] and the [`Sink::changes`] that follow it
/// without returning from [`follow`](Self::follow), take an error for an empty set, or put a credential into an error.
///
/// What the store has to bear is bounded by the engine, and by the backend as far as a request goes:
///
/// - **L1** While the store is away: at most 30 connection attempts a minute, below 5 % of a core, no log line repeated within 5 s.
/// - **L2** When it comes back: attempts spread by jitter; work proportional to what this process holds, nothing re-read twice,
///   nothing rewritten that survived.
/// - **L3** A change to one of n instances costs work for one, not n, on the wire and on the processor.
/// - **L4** No listing of keys without a bound; large sets are read in pages at one revision.
///
/// A store where nothing can be registered ([`Capabilities::registers`]) leaves the methods about leases and records as they are.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The address without credentials, for messages.
    fn address(&self) -> String;

    /// What tells the records that this handle sees from those of every other store and namespace, without credentials: under it a
    /// [`DiskCache`](crate::DiskCache) keeps sets for the next process. The same for whoever sees the same records.
    fn identity(&self) -> String {
        self.address()
    }

    /// What the store can do.
    fn capabilities(&self) -> &Capabilities;

    /// Reads keys back; the layout of all keys that this store writes.
    fn parse_key<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)>;

    /// Makes a working connection, giving up the one before it, and returns once the store has answered on it.
    async fn connect(&self) -> Result<()>;

    /// Asks the store for an answer on the connection that the subscriptions use.
    async fn ping(&self) -> Result<()>;

    /// Opens a lease or session.
    async fn grant(&self, ttl: Duration) -> Result<Lease> {
        let _ = ttl;
        Err(unsupported("open a lease on", self.address()))
    }

    /// Renews a lease, and the records in `held` where they carry a TTL of their own.
    async fn renew(&self, lease: &Lease, held: &[Key]) -> Result<Renewal> {
        let _ = (lease, held);
        Err(unsupported("renew a lease on", self.address()))
    }

    /// Compares what hangs on the lease with `held`.
    async fn audit(&self, lease: &Lease, held: &[Key]) -> Result<Audit> {
        let _ = (lease, held);
        Err(unsupported("audit a lease on", self.address()))
    }

    /// Gives a lease up together with everything that hangs on it.
    async fn revoke(&self, lease: &Lease) -> Result<()> {
        let _ = lease;
        Err(unsupported("revoke a lease on", self.address()))
    }

    /// Writes a record on a lease.
    ///
    /// Without `previous` it takes over whatever stands there, and the store remembers, as long as the former owner's lease lives, that
    /// it lost the record (R6). With `previous` it writes only if the record is absent, nobody's (no lease), or still that owner's, and
    /// was not taken from it; otherwise it answers [`Written::Superseded`]. Once it has written, the lease has not lost the record any more.
    async fn write(&self, lease: &Lease, key: &Key, value: &[u8], previous: Option<&Owner>) -> Result<Written> {
        let _ = (lease, key, value, previous);
        Err(unsupported("register on", self.address()))
    }

    /// Removes a record if `owner` still owns it, or if it is nobody's (no lease): left behind it would outlive its process for ever.
    /// That somebody else owns it, or that it is gone, is success too.
    async fn remove(&self, key: &Key, owner: &Owner) -> Result<()> {
        let _ = (key, owner);
        Err(unsupported("deregister on", self.address()))
    }

    /// Delivers the full set and then every change of it, until continuity cannot be promised any longer.
    ///
    /// It returns the reason: `Gap` where reading anew mends it, anything else for a failure.
    async fn follow(&self, scope: &Scope, sink: &dyn Sink) -> Error;

    /// Summarises a scope without transferring its values: how many records there are, and which changed after a revision.
    async fn digest(&self, scope: &Scope, since: u64) -> Result<Digest>;

    /// The local address from which the store is reached; `None` where there is no network between.
    fn source_address(&self) -> Option<IpAddr> {
        None
    }
}

fn unsupported(operation: &'static str, address: String) -> Error {
    Error::new(crate::ErrorKind::Unsupported, operation, address, "nothing can be registered there")
}
