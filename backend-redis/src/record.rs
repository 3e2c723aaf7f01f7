//! Writing and removing records, guarded by who owns them.

use discovery_core::store::{Lease, Owner, Stamps, Written};
use discovery_core::{Key, Result};

use crate::layout::Layout;
use crate::lease::{lease_of, token};
use crate::live::Live;
use crate::names::{self, Seen};

/// Writes a record on a lease: over anything if there is no previous owner, else only over what is absent, nobody's, or its own, and
/// was not taken from it (R6).
///
/// One round trip, and a second one for a service's first record.
pub(crate) async fn write(
    live: &Live,
    layout: &Layout,
    stamps: &Stamps,
    lease: &Lease,
    key: &Key,
    value: &[u8],
    previous: Option<&Owner>,
) -> Result<Written> {
    stamps.forget(key);
    let (segment, id) = (layout.segment(&key.service), layout.id(key));
    let ttl = u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX);
    let call = live.call("write", layout.service_stem(&segment), |call| {
        call.arg(&id).arg(value).arg(ttl).arg(token(lease));
        if let Some(owner) = previous {
            call.arg(token(&owner.lease));
        }
    });
    let mut answer = call.await?;
    if answer.text()? == "superseded" {
        return Ok(Written::Superseded(lease_of(&answer.text()?)));
    }
    let (version, count) = (answer.count()?, answer.count()?);
    stamps.wrote(key, version);
    if count == 1 {
        let seen = Seen { segment, version, wait: lease.ttl };
        if let Err(error) = names::enlist(live, layout, &[seen]).await {
            // The record stands and can be read; the next audit enlists its service.
            tracing::debug!(%key, %error, "could not enter a service into the list");
        }
    }
    Ok(Written::Done(Owner { lease: lease.clone(), mark: "".into() }))
}

/// Removes a record if its owner still owns it, or nobody does.
pub(crate) async fn remove(live: &Live, layout: &Layout, key: &Key, owner: &Owner) -> Result<()> {
    let segment = layout.segment(&key.service);
    let call = live.call("remove", layout.service_stem(&segment), |call| {
        call.arg(layout.id(key)).arg(token(&owner.lease));
    });
    let mut answer = call.await?;
    let (version, count) = (answer.count()?, answer.count()?);
    if count == 0 {
        names::delist(live, layout, &segment, version).await;
    }
    Ok(())
}
