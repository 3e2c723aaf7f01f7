//! Reading a scope: in pages that end at one version, or as a summary.

use std::time::Duration;

use discovery_core::store::{RawChange, RawRecord, Scope, Sink};
use discovery_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout_at};

use crate::layout::Layout;
use crate::live::Live;
use crate::names;
use crate::node::{Care, Subscription};
use crate::notice::{Id, Notice};
use crate::script::Answer;
use crate::values;

/// Ids a request of the script, so that none blocks the server for more than a millisecond or so.
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

/// How a scope was read.
pub(crate) struct Loaded {
    pub(crate) version: u64,
    /// What changed while it was read.
    pub(crate) since: Vec<RawChange>,
    /// When something has to be swept next.
    pub(crate) due: Option<Instant>,
}

/// Reads everything in a scope, however large it is, while its changes arrive on `subscription`.
///
/// Ids are listed first and values are read after them; what changes meanwhile is told as well. So applying what was told, up to the
/// version that is asked for last, to what was read gives the set at that version exactly.
pub(crate) async fn load(
    live: &Live,
    layout: &Layout,
    scope: &Scope,
    subscription: &mut Subscription,
    sink: &dyn Sink,
) -> Result<Loaded> {
    let stem = layout.stem(scope);
    let keys = layout.public_keys(scope);
    let first = sweep(live, layout, scope).await?;
    let node = subscription.node.clone();
    let mut reading = node.reading(&stem, live.patience, Care::None).await?;
    let mut lost = Vec::new();
    let mut take = |some: Vec<(Id, Option<Vec<u8>>)>| {
        let (there, gone): (Vec<_>, Vec<_>) = some.into_iter().partition(|(_, value)| value.is_some());
        lost.extend(gone.into_iter().map(|(id, _)| id));
        // Each is at least as new as the version that was asked for first, and what is newer is told.
        let records = there
            .into_iter()
            .filter_map(|(id, value)| Some(RawRecord { key: keys.of(&id), revision: first.version, value: value? }));
        sink.part(records.collect());
    };
    let read = match values::read(&reading, scope, &mut take).await {
        // Somebody wrote what is no record. What was read so far is replaced, and what changed since is told.
        Err(error) if error.kind() == ErrorKind::TooLarge => {
            reading = node.reading(&stem, live.patience, Care::Bounded).await?;
            // The same again can only be another set's, or the ids': it is read anew later.
            values::read(&reading, scope, &mut take).await.map_err(|error| match error.kind() {
                ErrorKind::TooLarge => gap(&stem, error.message()),
                _ => error,
            })
        }
        read => read,
    };
    let (lowest, highest) = read?;
    let highest = highest.max(reading.finish().await?);
    let last = sweep(live, layout, scope).await?;
    if lowest < first.version || highest > last.version {
        let error = gap(&stem, "the server lost its data while it was read, or another server was read");
        reading.give_up(&error).await;
        return Err(error);
    }
    let (mut version, mut since, end) = (first.version, Vec::new(), Instant::now() + CATCH_UP);
    while version < last.version {
        let Ok(Some(message)) = timeout_at(end, subscription.inbox.next()).await else {
            return Err(gap(&stem, "changes made while it was read were not told"));
        };
        let Some(notice) = Notice::parse(&message).filter(|notice| notice.version > version) else { continue };
        if notice.before != version {
            return Err(gap(&stem, "changes made while it was read were not told"));
        }
        version = notice.version;
        since.push(notice.change(&keys));
    }
    // Those that are something else than a record are there all the same.
    let others = purge(live, &stem, lost).await?.into_iter();
    let other = |id: Id| RawRecord { key: keys.of(&id), revision: first.version, value: Vec::new() };
    sink.part(others.map(other).collect());
    Ok(Loaded { version, since, due: last.first.map(|first| Instant::now() + first) })
}

/// Takes out what was deleted by hand and not removed since, which is told like any other removal; answers what is there.
async fn purge(live: &Live, stem: &str, ids: Vec<Id>) -> Result<Vec<Id>> {
    let mut there = Vec::new();
    for some in ids.chunks(PAGE) {
        let call = live.call("purge", stem, |call| {
            for id in some {
                call.arg(id);
            }
        });
        let mut answer = call.await?;
        let (_version, _count) = (answer.count()?, answer.count()?);
        while !answer.is_empty() {
            there.push(answer.bytes()?);
        }
    }
    Ok(there)
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
