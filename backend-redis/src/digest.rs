//! Summarising a scope for reconciliation, and looking whether what never ends is still there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use discovery_core::Result;
use discovery_core::store::{Digest, Scope};
use futures_util::future::try_join;

use crate::layout::Layout;
use crate::live::Live;
use crate::load::{PAGE, Summary, sweep};
use crate::names;

/// How far the records of large services have been looked at, one page a reconciliation.
#[derive(Default)]
pub(crate) struct Rounds(Mutex<HashMap<Arc<str>, u64>>);

impl Rounds {
    fn begin(&self, service: &Arc<str>) -> u64 {
        self.lock().get(service).copied().unwrap_or(0)
    }

    fn end(&self, service: &Arc<str>, next: u64) {
        let mut rounds = self.lock();
        match next {
            0 => _ = rounds.remove(service),
            next => _ = rounds.insert(service.clone(), next),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what is past its deadline or was deleted by hand, counts what is left, and lists what changed after a revision.
pub(crate) async fn digest(live: &Live, layout: &Layout, rounds: &Rounds, scope: &Scope, since: u64) -> Result<Digest> {
    let checked = async {
        match scope {
            Scope::Service(service) => check(live, layout, rounds, service).await,
            Scope::Names => Ok(0),
        }
    };
    // Both at once, which a slow link notices. The check is sent first; a count that misses it is put right by the next.
    let (removed, Summary { version, count, .. }) = try_join(checked, sweep(live, layout, scope)).await?;
    if let Scope::Service(service) = scope
        && removed > 0
        && count == 0
    {
        names::delist(live, layout, &layout.segment(service), version).await;
    }
    let (stem, keys) = (layout.stem(scope), layout.public_keys(scope));
    let (mut after, mut changed) = (since, Vec::new());
    loop {
        // What has changed since the sweep is listed as well.
        let page = live.changed(&stem, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map_or(after, |(_, revision)| *revision);
        changed.extend(page.into_iter().map(|(id, revision)| (keys.of(&id), revision)));
        if is_last {
            return Ok(Digest { revision: version, count: usize::try_from(count).unwrap_or(usize::MAX), changed });
        }
    }
}

/// Looks at the next page of records that have no end, and answers how many were deleted by hand: nobody renews them, so nobody else
/// would notice (W8).
async fn check(live: &Live, layout: &Layout, rounds: &Rounds, service: &Arc<str>) -> Result<u64> {
    let stem = layout.service_stem(&layout.segment(service));
    let skip = rounds.begin(service);
    let call = live.call("check", stem, |call| {
        call.arg(skip);
    });
    let mut answer = call.await?;
    let (next, removed) = (answer.count()?, answer.count()?);
    rounds.end(service, next);
    Ok(removed)
}
