//! Reading a scope: in pages that end at one version, or as a summary.

use std::collections::HashMap;
use std::time::Duration;

use discovery_core::store::{RawRecord, Scope};
use discovery_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout};

use crate::layout::Layout;
use crate::live::Live;
use crate::names;
use crate::node::Subscription;
use crate::notice::{Id, Notice};
use crate::script::Answer;
use crate::values;

/// Ids a page, so that no request blocks the server for more than a millisecond or so.
pub(crate) const PAGE: usize = 1_000;
/// How long the notifications of changes made while it was read may take. They came before the last answer on the same connection,
/// so they are there already unless they were lost.
const CATCH_UP: Duration = Duration::from_secs(1);

/// What a scope looks like without its records.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) version: u64,
    /// How long until the first deadline has passed; `None` if nothing ends.
    pub(crate) first: Option<Duration>,
    /// How long until the last deadline has passed; `None` if something has no end, or nothing is there.
    pub(crate) last: Option<Duration>,
    pub(crate) count: u64,
}

impl Summary {
    pub(crate) fn read(answer: &mut Answer) -> Result<Self> {
        Ok(Self {
            version: answer.count()?,
            first: answer.number()?.map(Duration::from_millis),
            last: answer.number()?.map(Duration::from_millis),
            count: answer.count()?,
        })
    }
}

/// A full set at one version.
pub(crate) struct Loaded {
    pub(crate) version: u64,
    pub(crate) records: Vec<RawRecord>,
    /// When something has to be swept next.
    pub(crate) due: Option<Instant>,
}

/// Reads everything in a scope, however large it is, while its changes arrive on `subscription`.
///
/// Ids are read by revision and values after them; what changes meanwhile is told as well. So applying what was told, up to the
/// version that is asked for last, to what was read gives the set at that version exactly.
pub(crate) async fn load(
    live: &Live,
    layout: &Layout,
    scope: &Scope,
    subscription: &mut Subscription,
) -> Result<Loaded> {
    let stem = layout.stem(scope);
    let first = sweep(live, layout, scope).await?;
    let read = values::read(live, &stem, scope).await?;
    let last = sweep(live, layout, scope).await?;
    let due = last.first.map(|first| Instant::now() + first);
    let raw = |id: Id, revision, value| RawRecord { key: layout.public_key(scope, &id), revision, value };
    if last.version < first.version {
        return Err(gap(&stem, "the server lost its data while it was read"));
    }
    if first.version == last.version {
        let mut lost = Vec::new();
        let mut records = Vec::with_capacity(read.len());
        for (id, (revision, value)) in read {
            match value {
                Some(value) => records.push(raw(id, revision, value)),
                None => lost.push(id),
            }
        }
        purge(live, &stem, &lost).await?;
        return Ok(Loaded { version: last.version, records, due });
    }
    let mut known: HashMap<_, _> = read.into_iter().collect();
    let mut version = first.version;
    while version < last.version {
        let Ok(Some(message)) = timeout(CATCH_UP, subscription.inbox.next()).await else {
            return Err(gap(&stem, "changes made while it was read were not told"));
        };
        let Some(notice) = Notice::parse(&message).filter(|notice| notice.version > version) else { continue };
        if notice.before != version {
            return Err(gap(&stem, "changes made while it was read were not told"));
        }
        version = notice.version;
        match notice.value {
            Some(value) => known.insert(notice.id, (notice.version, Some(value))),
            None => known.remove(&notice.id),
        };
    }
    let lost: Vec<_> = known.extract_if(|_, (_, value)| value.is_none()).map(|(id, _)| id).collect();
    purge(live, &stem, &lost).await?;
    let records = known.into_iter().map(|(id, (revision, value))| raw(id, revision, value.unwrap_or_default()));
    Ok(Loaded { version, records: records.collect(), due })
}

/// Takes out what was deleted by hand, which is told like any other removal.
async fn purge(live: &Live, stem: &str, ids: &[Id]) -> Result<()> {
    for some in ids.chunks(PAGE) {
        let call = live.call("purge", stem, |call| {
            for id in some {
                call.arg(id);
            }
        });
        call.await?;
    }
    Ok(())
}

/// Removes what is past its deadline, and summarises a scope without transferring it.
pub(crate) async fn sweep(live: &Live, layout: &Layout, scope: &Scope) -> Result<Summary> {
    let Scope::Service(service) = scope else {
        return names::look_after(live, layout).await;
    };
    let segment = layout.segment(service);
    let (summary, removed) = sweep_segment(live, layout, &segment).await?;
    if removed > 0 && summary.count == 0 {
        names::delist(live, layout, &segment, summary.version).await;
    }
    Ok(summary)
}

/// The same for a service whose name is encoded already; also says how many were removed.
pub(crate) async fn sweep_segment(live: &Live, layout: &Layout, segment: &str) -> Result<(Summary, u64)> {
    let mut answer = live.call("sweep", layout.service_stem(segment), |_| {}).await?;
    Ok((Summary::read(&mut answer)?, answer.count()?))
}

pub(crate) fn gap(stem: &str, why: &str) -> Error {
    Error::new(ErrorKind::Gap, "follow", stem, why)
}
