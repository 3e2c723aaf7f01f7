//! The lease: granted, renewed, audited and given up.

use std::time::Duration;

use discovery_core::store::{Audit, Lease, Renewal};
use discovery_core::{Key, KeySpace, Result};
use etcd_client::{Client, LeaseTimeToLiveOptions};

use crate::error::{classify, is_lease_lost};
use crate::load::text;
use crate::record::id;

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

/// Compares the keys that hang on the lease with those that should, in one request.
pub(crate) async fn audit(client: &Client, space: &KeySpace, lease: &Lease, held: &[Key]) -> Result<Audit> {
    let options = LeaseTimeToLiveOptions::new().with_keys();
    let answer = client
        .lease_client()
        .time_to_live(id(lease), Some(options))
        .await
        .map_err(|error| classify(error, "audit", &name(lease)))?;
    let found: std::collections::HashSet<Key> =
        answer.keys().iter().filter_map(|key| space.parse(&text(key.clone()))).collect();
    let held: std::collections::HashSet<&Key> = held.iter().collect();
    Ok(Audit {
        missing: held.iter().filter(|key| !found.contains(**key)).map(|key| (*key).clone()).collect(),
        orphans: found.iter().filter(|key| !held.contains(key)).cloned().collect(),
    })
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
