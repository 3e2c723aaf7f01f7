//! The lease: granted, renewed, audited and given up.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use discovery_core::store::{Audit, Lease, Renewal, Stamps};
use discovery_core::{Key, KeySpace, Result};
use etcd_client::{Client, Error as ClientError, GetOptions, LeaseTimeToLiveOptions, Txn, TxnOp, TxnOpResponse};

use crate::connection::Live;
use crate::error::{classify, is_lease_lost};
use crate::load::text;
use crate::record::{id, revision};

/// Records asked about in one transaction; etcd allows 128 operations by default.
const PAGE: usize = 100;

/// Grants a lease. etcd counts whole seconds, so the TTL is rounded up; what was granted counts from then on.
pub(crate) async fn grant(client: &Client, ttl: Duration, address: &str) -> Result<Lease> {
    let seconds = i64::try_from(ttl.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX);
    let answer =
        client.lease_client().grant(seconds, None).await.map_err(|e| classify(e, "open a lease on", address))?;
    Ok(Lease { id: answer.id().cast_unsigned(), ttl: Duration::from_secs(answer.ttl().unsigned_abs()) })
}

/// Renews a lease by a request of its own: an answer or an error, and no stream whose silence would have to be interpreted.
pub(crate) async fn renew(client: &Client, lease: &Lease) -> Result<Renewal> {
    match client.lease_client().keep_alive(id(lease)).await {
        // The client turns an answer without a TTL into "lease not found".
        Ok(_) => Ok(Renewal::Held(lease.ttl)),
        Err(error) if is_lease_lost(&error) => Ok(Renewal::Lost),
        Err(error) => Err(classify(error, "renew", &name(lease))),
    }
}

/// Compares the keys that hang on the lease with those that should, in one request; and once on each connection the records with what was
/// written, since a store that was restored knows the lease with older ones. It is a new connection, or the revision has gone back.
pub(crate) async fn audit(
    live: &Live,
    space: &KeySpace,
    stamps: &Stamps,
    lease: &Lease,
    held: &[Key],
) -> Result<Audit> {
    let failed = |error| classify(error, "audit", &name(lease));
    let options = LeaseTimeToLiveOptions::new().with_keys();
    let answer = live.client.lease_client().time_to_live(id(lease), Some(options)).await.map_err(failed)?;
    let mut others = HashSet::new();
    if !live.compared.load(Ordering::Relaxed) || revision(answer.header()) < stamps.newest() {
        others = compare(&live.client, space, stamps, held).await.map_err(failed)?;
        live.compared.store(true, Ordering::Relaxed);
    }
    let found: HashSet<Key> = answer.keys().iter().filter_map(|key| space.parse(&text(key.clone()))).collect();
    let held: HashSet<&Key> = held.iter().collect();
    let intact = |key: &Key| found.contains(key) && !others.contains(key);
    Ok(Audit {
        missing: held.iter().filter(|key| !intact(key)).map(|key| (*key).clone()).collect(),
        orphans: found.iter().filter(|key| !held.contains(key)).cloned().collect(),
    })
}

/// The records that are not those that were written last.
async fn compare(
    client: &Client,
    space: &KeySpace,
    stamps: &Stamps,
    held: &[Key],
) -> Result<HashSet<Key>, ClientError> {
    let before = stamps.before(held);
    let mut others = HashSet::new();
    for page in held.chunks(PAGE) {
        let get = |key: &Key| TxnOp::get(space.key(key), Some(GetOptions::new().with_keys_only()));
        let answer = client.kv_client().txn(Txn::new().and_then(page.iter().map(get).collect::<Vec<_>>())).await?;
        for (key, answer) in page.iter().zip(answer.op_responses()) {
            if let TxnOpResponse::Get(found) = answer
                && let Some(record) = found.kvs().first()
                && stamps.is_other(&before, key, record.mod_revision().unsigned_abs())
            {
                others.insert(key.clone());
            }
        }
    }
    Ok(others)
}

/// Gives a lease up. One that the store does not know is given up already.
pub(crate) async fn revoke(client: &Client, lease: &Lease) -> Result<()> {
    match client.lease_client().revoke(id(lease)).await {
        Ok(_) => Ok(()),
        Err(error) if is_lease_lost(&error) => Ok(()),
        Err(error) => Err(classify(error, "revoke", &name(lease))),
    }
}

fn name(lease: &Lease) -> String {
    format!("lease {:x}", lease.id)
}
