//! The lease: a mark on the records of a handle, which keep themselves by their TTL.
//!
//! The server holds nothing for a lease itself. Granting one writes nothing, and it is lost when no record bears its mark any more.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use discovery_core::store::{Audit, Lease, Renewal, Stamps};
use discovery_core::{Error, ErrorKind, Key, Result};
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::layout::Layout;
use crate::live::Live;
use crate::names::{self, Seen};

/// Ids in one call, so that no call blocks the server for long.
const BATCH: usize = 500;
/// The share of the engine's deadline after which a service counts as failed, so that what the others answered is not lost with it.
const SHARE: f64 = 0.75;
/// A key that nobody wants is forgotten after this many audits without its record: a write sent before the first of them has
/// either arrived by the second or never will.
const FORGET_AFTER: u8 = 2;

/// The keys that the current lease was written to, or may have been. Redis knows no leases, so this is what there is to look at.
#[derive(Default)]
pub(crate) struct Footprint {
    touched: Mutex<(u64, HashMap<Key, u8>)>,
}

impl Footprint {
    /// Remembers a key before it is written.
    pub(crate) fn touch(&self, lease: &Lease, key: &Key) {
        let mut touched = self.lock();
        if touched.0 == lease.id {
            touched.1.insert(key.clone(), 0);
        }
    }

    fn begin(&self, lease: u64) {
        *self.lock() = (lease, HashMap::new());
    }

    fn keys(&self, lease: &Lease) -> Vec<Key> {
        let touched = self.lock();
        if touched.0 == lease.id { touched.1.keys().cloned().collect() } else { Vec::new() }
    }

    /// Forgets what was looked for in vain often enough.
    fn forget(&self, lease: &Lease, found: impl Fn(&Key) -> bool) {
        let mut touched = self.lock();
        if touched.0 == lease.id {
            touched.1.retain(|key, misses| {
                *misses = if found(key) { 0 } else { *misses + 1 };
                *misses < FORGET_AFTER
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<Key, u8>)> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chooses a mark that no other process chooses: the hasher's keys come from the operating system.
pub(crate) fn grant(footprint: &Footprint, ttl: Duration) -> Lease {
    let id = RandomState::new().hash_one(std::process::id());
    footprint.begin(id);
    Lease { id, ttl }
}

/// How a lease is written into the store.
pub(crate) fn token(lease: &Lease) -> String {
    format!("{:016x}", lease.id)
}

/// The lease that the store names; none where nobody's record stands.
pub(crate) fn lease_of(token: &str) -> Option<u64> {
    u64::from_str_radix(token, 16).ok()
}

/// Lets all records live for another TTL: one call a service, all at once. In a Cluster each is on its own, since one may lie on a
/// server that is silent.
pub(crate) async fn renew(
    live: &Live,
    layout: &Layout,
    patience: Duration,
    lease: &Lease,
    held: &[Key],
) -> Result<Renewal> {
    let ttl = u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX);
    // The engine gives up a renewal that takes longer than a sixth of the TTL, with everything that was renewed.
    let limit = patience.min(lease.ttl / 6).mul_f64(SHARE);
    let renewals = batches(layout, held).into_iter().map(async |batch| {
        let renewal = async {
            let call = live.call("renew", layout.service_stem(&batch.segment), |call| {
                call.arg(token(lease)).arg(ttl).arg(&batch.ids);
            });
            let mut answer = call.await?;
            // A service that is empty stays in the list, as the handle registers there again; should it not, the list's readers see it.
            let (_version, _count, renewed) = (answer.count()?, answer.count()?, answer.count()?);
            Ok::<u64, Error>(renewed)
        };
        (within(limit, "renew", &batch, renewal).await, batch.keys)
    });
    let (mut renewed, mut failed, mut last, mut answered) = (0, Vec::new(), None, false);
    for (result, keys) in join_all(renewals).await {
        match result {
            Ok(count) => (renewed, answered) = (renewed + count, true),
            Err(error) => {
                failed.extend(keys);
                last = Some(error);
            }
        }
    }
    match last {
        Some(error) if !answered => Err(error),
        Some(cause) => Ok(Renewal::Partly { ttl: lease.ttl, failed, cause }),
        None if renewed == 0 && !held.is_empty() => Ok(Renewal::Lost),
        None => Ok(Renewal::Held(lease.ttl)),
    }
}

/// Compares the records that bear the mark with those that should and with what was written last, and enlists their services. What cannot be asked about is left alone.
pub(crate) async fn audit(
    live: &Live,
    layout: &Layout,
    footprint: &Footprint,
    stamps: &Stamps,
    patience: Duration,
    lease: &Lease,
    held: &[Key],
) -> Result<Audit> {
    let before = stamps.before(held);
    let mut keys = footprint.keys(lease);
    let known: HashSet<_> = keys.iter().cloned().collect();
    keys.extend(held.iter().filter(|key| !known.contains(*key)).cloned());
    let limit = patience.mul_f64(SHARE);
    let audits = batches(layout, &keys).into_iter().map(async |batch| {
        let audit = async {
            let call = live.call("audit", layout.service_stem(&batch.segment), |call| {
                call.arg(token(lease)).arg(&batch.ids);
            });
            let mut answer = call.await?;
            let (version, count) = (answer.count()?, answer.count()?);
            let mut found = HashMap::with_capacity(answer.len() / 2);
            while !answer.is_empty() {
                found.insert(answer.text()?, answer.count()?);
            }
            Ok::<_, Error>((version, count, found))
        };
        (within(limit, "audit", &batch, audit).await, batch)
    });
    let (mut owned, mut others, mut unknown) = (HashSet::new(), HashSet::new(), HashSet::new());
    let (mut seen, mut last) = (Vec::new(), None);
    let audits = join_all(audits).await;
    let asked = audits.len();
    let mut failed = 0;
    for (result, Batch { segment, ids, keys }) in audits {
        match result {
            Ok((version, count, found)) => {
                for (id, key) in ids.iter().zip(keys) {
                    let Some(revision) = found.get(id) else { continue };
                    if stamps.is_other(&before, &key, *revision) {
                        others.insert(key.clone());
                    }
                    owned.insert(key);
                }
                if count > 0 {
                    seen.push(Seen { segment, version, wait: lease.ttl });
                }
            }
            Err(error) => {
                unknown.extend(keys);
                failed += 1;
                last = Some(error);
            }
        }
    }
    if let Some(error) = last {
        if failed == asked {
            return Err(error);
        }
        tracing::debug!(%error, failed, "could not audit all services");
    }
    if let Err(error) = names::enlist(live, layout, &seen).await {
        tracing::debug!(%error, "could not enter services into the list; the next audit will");
    }
    let wanted: HashSet<_> = held.iter().collect();
    footprint.forget(lease, |key| wanted.contains(key) || owned.contains(key) || unknown.contains(key));
    let is_missing = |key: &&Key| others.contains(*key) || !owned.contains(*key) && !unknown.contains(*key);
    Ok(Audit {
        missing: held.iter().filter(is_missing).cloned().collect(),
        orphans: owned.iter().filter(|key| !wanted.contains(key)).cloned().collect(),
    })
}

/// Removes every record that bears the mark. All are tried even if one fails; what is left ends with its TTL.
pub(crate) async fn revoke(live: &Live, layout: &Layout, footprint: &Footprint, lease: &Lease) -> Result<()> {
    let owner = discovery_core::store::Owner { lease: lease.clone(), mark: "".into() };
    let keys = footprint.keys(lease);
    let removed = join_all(keys.iter().map(|key| crate::record::remove(live, layout, key, &owner))).await;
    removed.into_iter().collect::<Result<()>>()?;
    footprint.begin(0);
    Ok(())
}

/// Runs what concerns some records of one service.
async fn within<T>(
    limit: Duration,
    operation: &'static str,
    batch: &Batch,
    request: impl Future<Output = Result<T>>,
) -> Result<T> {
    timeout(limit, request).await.unwrap_or_else(|_| {
        let why = format!("no answer within {limit:?}");
        Err(Error::new(ErrorKind::DeadlineExceeded, operation, &*batch.segment, why))
    })
}

/// Some records of one service: its encoded name, the encoded ids, and the keys in the same order.
struct Batch {
    segment: String,
    ids: Vec<String>,
    keys: Vec<Key>,
}

/// The records by service, in batches.
fn batches(layout: &Layout, keys: &[Key]) -> Vec<Batch> {
    let mut services: HashMap<&str, Vec<Key>> = HashMap::new();
    for key in keys {
        services.entry(&key.service).or_default().push(key.clone());
    }
    let split = |(service, keys): (&str, Vec<Key>)| {
        let batch = |some: &[Key]| Batch {
            segment: layout.segment(service),
            ids: some.iter().map(|key| layout.id(key)).collect(),
            keys: some.to_vec(),
        };
        keys.chunks(BATCH).map(batch).collect::<Vec<_>>()
    };
    services.into_iter().flat_map(split).collect()
}
