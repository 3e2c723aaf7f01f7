//! The lease: a mark on the records of a handle, which keep themselves by their TTL.
//!
//! The server holds nothing for a lease itself. Granting one writes nothing, and it is lost when no record bears its mark any more.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use discovery_core::store::{Audit, Lease, Renewal};
use discovery_core::{Error, Key, Result};
use futures_util::future::{join_all, try_join_all};

use crate::layout::Layout;
use crate::live::Live;
use crate::names::{self, Seen};

/// Ids in one call, so that no call blocks the server for long.
const BATCH: usize = 500;
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

/// Lets all records live for another TTL: one call a service, all at once on one connection.
pub(crate) async fn renew(live: &Live, layout: &Layout, lease: &Lease, held: &[Key]) -> Result<Renewal> {
    let ttl = u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX);
    let renewals = batches(layout, held).into_iter().map(async |(segment, ids)| {
        let call = live.call("renew", layout.service_stem(&segment), |call| {
            call.arg(token(lease)).arg(ttl).arg(&ids);
        });
        let mut answer = call.await?;
        let (version, count, renewed) = (answer.count()?, answer.count()?, answer.count()?);
        if count == 0 {
            names::delist(live, layout, &segment, version).await;
        }
        Ok::<u64, Error>(renewed)
    });
    // All are tried even if one fails: in a Cluster the others may lie on a server that works.
    let renewed = join_all(renewals).await.into_iter().sum::<Result<u64>>()?;
    Ok(if renewed == 0 && !held.is_empty() { Renewal::Lost } else { Renewal::Held(lease.ttl) })
}

/// Compares the records that bear the mark with those that should, and enlists their services.
pub(crate) async fn audit(
    live: &Live,
    layout: &Layout,
    footprint: &Footprint,
    lease: &Lease,
    held: &[Key],
) -> Result<Audit> {
    let mut keys = footprint.keys(lease);
    let known: std::collections::HashSet<_> = keys.iter().cloned().collect();
    keys.extend(held.iter().filter(|key| !known.contains(*key)).cloned());
    let (mut owned, mut seen) = (HashMap::<String, Vec<String>>::new(), Vec::new());
    let audits = batches(layout, &keys).into_iter().map(async |(segment, ids)| {
        let call = live.call("audit", layout.service_stem(&segment), |call| {
            call.arg(token(lease)).arg(&ids);
        });
        let mut answer = call.await?;
        let (version, count) = (answer.count()?, answer.count()?);
        let mut found = Vec::with_capacity(answer.len());
        while !answer.is_empty() {
            found.push(answer.text()?);
        }
        Ok::<_, Error>((segment, version, count, found))
    });
    for (segment, version, count, found) in try_join_all(audits).await? {
        if count > 0 {
            seen.push(Seen { segment: segment.clone(), version, wait: lease.ttl });
        }
        owned.entry(segment).or_default().extend(found);
    }
    names::enlist(live, layout, &seen).await?;
    let owned: std::collections::HashSet<(String, String)> =
        owned.into_iter().flat_map(|(segment, ids)| ids.into_iter().map(move |id| (segment.clone(), id))).collect();
    let is_owned = |key: &Key| owned.contains(&(layout.segment(&key.service), layout.id(key)));
    let wanted: std::collections::HashSet<_> = held.iter().collect();
    footprint.forget(lease, |key| wanted.contains(key) || is_owned(key));
    Ok(Audit {
        missing: held.iter().filter(|key| !is_owned(key)).cloned().collect(),
        orphans: keys.iter().filter(|key| !wanted.contains(key) && is_owned(key)).cloned().collect(),
    })
}

/// Removes every record that bears the mark.
pub(crate) async fn revoke(live: &Live, layout: &Layout, footprint: &Footprint, lease: &Lease) -> Result<()> {
    let owner = discovery_core::store::Owner { lease: lease.clone(), mark: "".into() };
    let keys = footprint.keys(lease);
    try_join_all(keys.iter().map(|key| crate::record::remove(live, layout, key, &owner))).await?;
    footprint.begin(0);
    Ok(())
}

/// The encoded ids by encoded service, in batches.
fn batches(layout: &Layout, keys: &[Key]) -> Vec<(String, Vec<String>)> {
    let mut services: HashMap<&str, Vec<String>> = HashMap::new();
    for key in keys {
        services.entry(&key.service).or_default().push(layout.id(key));
    }
    let split = |(service, ids): (&str, Vec<String>)| {
        let segment = layout.segment(service);
        ids.chunks(BATCH).map(|some| (segment.clone(), some.to_vec())).collect::<Vec<_>>()
    };
    services.into_iter().flat_map(split).collect()
}
