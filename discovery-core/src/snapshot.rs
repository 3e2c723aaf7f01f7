//! What a watch yields: an immutable set that knows how fresh it is.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::set::{Change, InstanceSet};
use crate::{Error, Instance};

/// A moment, by the wall clock for people and by the monotonic clock for durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    wall: SystemTime,
    mono: Instant,
    /// How long it was ago at `mono`, for a moment before this process knew of it.
    ago: Duration,
}

impl Since {
    pub(crate) fn now() -> Self {
        Self { wall: SystemTime::now(), mono: Instant::now(), ago: Duration::ZERO }
    }

    /// A moment that only the wall clock tells of. One in the future is now.
    pub(crate) fn at(wall: SystemTime) -> Self {
        let ago = SystemTime::now().duration_since(wall).unwrap_or_default();
        Self { wall, mono: Instant::now(), ago }
    }

    /// The moment by the wall clock.
    pub fn wall(&self) -> SystemTime {
        self.wall
    }

    /// How long ago it was.
    pub fn elapsed(&self) -> Duration {
        self.ago.saturating_add(self.mono.elapsed())
    }
}

/// How far a set can be trusted to be the store's.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Freshness {
    /// No set was read yet: since when it is tried, and what stands in the way.
    Loading(Since, Option<Error>),
    /// The set follows the store.
    Live,
    /// The set is as it was: since when, and why (W4).
    Stale(Since, Error),
}

impl Freshness {
    /// Whether the set follows the store.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live)
    }

    /// Whether the set is as it was at an earlier time.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(..))
    }

    /// Whether no set was read yet.
    pub fn is_loading(&self) -> bool {
        matches!(self, Self::Loading(..))
    }

    /// What stands in the way of a live set.
    pub fn cause(&self) -> Option<&Error> {
        match self {
            Self::Loading(_, cause) => cause.as_ref(),
            Self::Live => None,
            Self::Stale(_, cause) => Some(cause),
        }
    }

    /// Since when there is no live set.
    pub fn since(&self) -> Option<Since> {
        match self {
            Self::Loading(since, _) | Self::Stale(since, _) => Some(*since),
            Self::Live => None,
        }
    }
}

/// A part of a sentence: that the set is live, or since when it is not, and why.
impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(since) = self.since() else {
            return f.write_str("the set is live");
        };
        write!(f, "the set is not live since {:?}", since.elapsed())?;
        match self.cause() {
            Some(cause) => write!(f, " because: {cause}"),
            None => Ok(()),
        }
    }
}

/// What a [`Watch`](crate::Watch) can yield: something with a freshness.
pub trait View: Send + Sync + 'static {
    /// How far it can be trusted.
    fn freshness(&self) -> &Freshness;
}

/// The instances of one service at one moment. Cloning the `Arc` around it is all that sharing costs.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) service: Arc<str>,
    pub(crate) revision: u64,
    pub(crate) freshness: Freshness,
    pub(crate) instances: InstanceSet,
    pub(crate) unreadable: usize,
    pub(crate) held: usize,
    pub(crate) from_disk: bool,
}

impl Snapshot {
    pub(crate) fn loading(service: Arc<str>) -> Self {
        Self {
            service,
            revision: 0,
            freshness: Freshness::Loading(Since::now(), None),
            instances: InstanceSet::default(),
            unreadable: 0,
            held: 0,
            from_disk: false,
        }
    }

    /// The service.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The store's revision that this set is known to include.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How far the set can be trusted.
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// The instances, sorted by id.
    pub fn instances(&self) -> &InstanceSet {
        &self.instances
    }

    /// The instance with this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Instance>> {
        self.instances.get(id)
    }

    /// How many instances there are.
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// How many records of this service cannot be read (W6).
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// How many of the instances the brake holds although the store no longer lists them (W9).
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether the set is the one that an earlier process left on the disk, as the store did not answer yet
    /// ([`DiskCache`](crate::DiskCache)).
    pub fn is_from_disk(&self) -> bool {
        self.from_disk
    }

    /// What changed since an earlier snapshot; it costs the difference, not the size.
    pub fn changes_since(&self, earlier: &Self) -> Vec<Change> {
        self.instances.changes_since(&earlier.instances)
    }
}

impl View for Snapshot {
    fn freshness(&self) -> &Freshness {
        &self.freshness
    }
}

/// The names of the services that have at least one record.
#[derive(Debug, Clone)]
pub struct ServiceNames {
    pub(crate) freshness: Freshness,
    pub(crate) names: Arc<BTreeSet<Arc<str>>>,
}

impl ServiceNames {
    /// How far the list can be trusted.
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// The names, sorted.
    pub fn names(&self) -> &BTreeSet<Arc<str>> {
        &self.names
    }
}

impl View for ServiceNames {
    fn freshness(&self) -> &Freshness {
        &self.freshness
    }
}
