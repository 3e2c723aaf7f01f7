//! Reading nodes: their names, their data many at a time, and whether they are still what a subscription knows.
//!
//! Servers before 3.6 are asked for one node a request, with many requests on their way.

use std::sync::Mutex;

use discovery_core::store::{Digest, Scope};
use discovery_core::{Error, ErrorKind, Result};
use futures_util::stream::{self, FuturesOrdered, TryChunksError};
use futures_util::{StreamExt, TryStreamExt};
use tokio::time::timeout;
use zookeeper_client::{Error as ClientError, MultiReadResult, Stat};

use crate::connection::{Live, Watches};
use crate::error::classify;
use crate::members::Members;
use crate::roster::{self, Roster};
use crate::tree::{SUPERSEDED, Tree, id_of, is_record, session_of};
use crate::watch::{Known, see};

/// Nodes a request. Above some hundreds a request gains nothing more.
const PAGE: usize = 500;
/// Nodes of the first request, from which the size of the others is estimated.
const SAMPLE: usize = 64;
/// Requests that are under way at once, so that the server reads one page while another travels.
const AHEAD: usize = 4;
/// Bytes of an answer; with large records a page has fewer of them. The largest sample of the largest records has 64 MB.
const ANSWER: usize = 4 * 1024 * 1024;
/// Bytes of paths in a request. The server closes the connection on a request of a mebibyte.
const REQUEST: usize = 512 * 1024;

/// Requests for one node each that are under way at once; more would only queue at the server.
const AT_ONCE: usize = 128;

/// What was found under a path.
#[derive(Debug)]
pub(crate) enum Found {
    Record(Vec<u8>, Stat),
    /// What tells a session that somebody newer owns the record.
    Superseded(Stat),
    /// A node that holds others.
    Parent,
    /// A node that may not be read.
    Denied,
    Gone,
}

/// The names under a node and when they changed last; `None` if there is no such node.
pub(crate) async fn list(live: &Live, path: &str) -> Result<Option<(Vec<String>, i64)>, ClientError> {
    match patiently(live, live.client.get_children(path)).await {
        Ok((names, stat)) => Ok(Some((names, stat.pzxid))),
        Err(ClientError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads any number of nodes, and answers in their order.
pub(crate) async fn read(live: &Live, paths: &[String]) -> Result<Vec<Found>, ClientError> {
    let mut all = Vec::with_capacity(paths.len());
    read_in_pages(live, paths, &mut |page| all.extend(page)).await?;
    Ok(all)
}

/// Reads any number of nodes, and gives them away page by page in their order, while the next pages are on their way.
pub(crate) async fn read_in_pages(
    live: &Live,
    paths: &[String],
    take: &mut (dyn FnMut(Vec<Found>) + Send),
) -> Result<(), ClientError> {
    if !live.server.reads_many() {
        let read = |at: usize| async move { understand(patiently(live, live.client.get_data(&paths[at])).await) };
        let mut pages = stream::iter(0..paths.len()).map(read).buffered(AT_ONCE).try_chunks(AT_ONCE);
        while let Some(page) = pages.next().await {
            take(page.map_err(|TryChunksError(_, error)| error)?);
        }
        return Ok(());
    }
    let (sample, rest) = paths.split_at(paths.len().min(SAMPLE));
    let found = read_page(live, sample).await?;
    if rest.is_empty() {
        take(found);
        return Ok(());
    }
    let largest = found.iter().map(size).max().unwrap_or(1);
    let longest = paths.iter().map(String::len).max().unwrap_or(1);
    let page = PAGE.min(ANSWER / largest).min(REQUEST / longest).max(1);
    let (mut rest, mut pages) = (rest.chunks(page), FuturesOrdered::new());
    take(found);
    loop {
        while pages.len() < AHEAD
            && let Some(next) = rest.next()
        {
            pages.push_back(read_page(live, next));
        }
        match pages.try_next().await? {
            Some(page) => take(page),
            None => return Ok(()),
        }
    }
}

async fn read_page(live: &Live, paths: &[String]) -> Result<Vec<Found>, ClientError> {
    let answer = {
        let mut reader = live.client.new_multi_reader();
        paths.iter().try_for_each(|path| reader.add_get_data(path))?;
        reader.commit()
    };
    let results = patiently(live, answer).await?;
    if results.len() != paths.len() {
        return Err(ClientError::UnexpectedError(format!("{} answers to {} reads", results.len(), paths.len())));
    }
    results.into_iter().map(|result| understand(data_of(result))).collect()
}

/// Reads the names under many nodes, and answers in their order; a node that is gone holds none.
pub(crate) async fn list_many(live: &Live, paths: &[String]) -> Result<Vec<Vec<String>>, ClientError> {
    if !live.server.reads_many() {
        let request = |at: usize| async move { Ok(list(live, &paths[at]).await?.unwrap_or_default().0) };
        return each(paths.len(), request).await;
    }
    let mut listed = Vec::with_capacity(paths.len());
    for page in paths.chunks(SAMPLE) {
        let answer = {
            let mut reader = live.client.new_multi_reader();
            page.iter().try_for_each(|path| reader.add_get_children(path))?;
            reader.commit()
        };
        for result in patiently(live, answer).await? {
            listed.push(match result {
                MultiReadResult::Children { children } => children,
                MultiReadResult::Error { err: ClientError::NoNode } => Vec::new(),
                MultiReadResult::Error { err } => return Err(err),
                other => return Err(ClientError::UnexpectedError(format!("{other:?} instead of names"))),
            });
        }
    }
    Ok(listed)
}

/// Asks which nodes there are, and answers in the order of their paths. It needs no right to read them.
pub(crate) async fn stats(live: &Live, paths: &[String]) -> Result<Vec<Option<Stat>>, ClientError> {
    each(paths.len(), |at| async move { patiently(live, live.client.check_stat(&paths[at])).await }).await
}

/// Makes requests by number, a bounded count of them at once, and answers in their order.
pub(crate) async fn each<T, F>(count: usize, request: impl Fn(usize) -> F) -> Result<Vec<T>, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    stream::iter(0..count).map(request).buffered(AT_ONCE).try_collect().await
}

/// A connection that loses an answer without closing would otherwise hold a subscription for ever.
pub(crate) async fn patiently<T>(
    live: &Live,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    timeout(live.patience, answer).await.unwrap_or(Err(ClientError::Timeout))
}

fn data_of(result: MultiReadResult) -> Result<(Vec<u8>, Stat), ClientError> {
    match result {
        MultiReadResult::Data { data, stat } => Ok((data, stat)),
        MultiReadResult::Error { err } => Err(err),
        other => Err(ClientError::UnexpectedError(format!("{other:?} instead of data"))),
    }
}

/// What the answer to a read says of the node.
pub(crate) fn understand(answer: Result<(Vec<u8>, Stat), ClientError>) -> Result<Found, ClientError> {
    match answer {
        Ok((data, stat)) if data == SUPERSEDED && session_of(&stat).is_some() => Ok(Found::Superseded(stat)),
        Ok((data, stat)) if is_record(&stat) => Ok(Found::Record(data, stat)),
        Ok(_) => Ok(Found::Parent),
        Err(ClientError::NoNode) => Ok(Found::Gone),
        Err(ClientError::NoAuth) => Ok(Found::Denied),
        Err(error) => Err(error),
    }
}

fn size(found: &Found) -> usize {
    match found {
        Found::Record(value, _) => value.len() + 128, // The numbers beside it.
        _ => 128,
    }
}

/// Compares a scope with what its subscription knows.
///
/// ZooKeeper keeps no number for the newest change under a node: a parent knows when a child came or went, but not when its data changed.
/// So the count is compared every time, and the records are compared page by page, one page a time.
pub(crate) async fn digest(live: &Live, tree: &Tree, scope: &Scope, since: u64) -> Result<Digest> {
    let base = tree.base(scope);
    let known = live.followed().get(scope).and_then(std::sync::Weak::upgrade);
    let Some(known) = known else {
        return Err(Error::new(ErrorKind::Unavailable, "count", base, "nobody follows it at the moment"));
    };
    let compared = match &*known {
        Known::Service(members) => compare_service(live, &base, members).await,
        Known::Names(roster) => compare_names(live, &base, roster).await,
    };
    let (count, changed) = compared.map_err(|error| classify(error, "count", &base))?;
    Ok(Digest { revision: since, count, changed })
}

/// How many records there are, and which of them were written when.
type Compared = (usize, Vec<(String, u64)>);

/// Counts the names, if any came or went since the last time, and reads those that are not known and the next page of those that are.
///
/// A change of data that was not notified is so found after as many reconciliations as there are pages; a record that came or went, by
/// the next one.
async fn compare_service(live: &Live, base: &str, members: &Mutex<Members>) -> Result<Compared, ClientError> {
    let mut at = patiently(live, live.client.check_stat(base)).await?.map_or(0, |stat| stat.pzxid);
    let (count, mut names) = if see(members, |members| members.is_of(at)) {
        (see(members, |members| members.count()), Vec::new())
    } else {
        let listed;
        (listed, at) = list(live, base).await?.unwrap_or_default();
        see(members, |members| members.compare(&listed, at))
    };
    names.extend(see(members, |members| members.next_page(PAGE)));
    let paths: Vec<_> = names.iter().map(|name| format!("{base}/{name}")).collect();
    let found = read(live, &paths).await?;
    // A change that is undone behind a slow link is never seen as such; that it was undone is news all the same.
    let differing = see(members, |members| members.differing(&names, &found));
    if let Watches::Children(watches) = &live.watches {
        // A one-shot watch that is lost tells nothing any more. So what differs is looked at again before it is missed.
        differing.iter().for_each(|name| watches.doubt(&format!("{base}/{name}")));
        if !differing.is_empty() || !see(members, |members| members.is_of(at)) {
            watches.doubt(base);
        }
    }
    let record = |(name, found): (String, &Found)| match found {
        Found::Record(_, stat) => Some((format!("{base}/{}", id_of(&name)), stat.mzxid.unsigned_abs())),
        // What is gone shows in the count.
        Found::Superseded(_) | Found::Parent | Found::Denied | Found::Gone => None,
    };
    Ok((count, names.into_iter().zip(&found).filter_map(record).collect()))
}

/// Compares the list of services, as [`compare_service`] does one of them.
async fn compare_names(live: &Live, base: &str, roster: &Mutex<Roster>) -> Result<Compared, ClientError> {
    let names = roster::load(live, base).await?;
    if let Watches::Children(watches) = &live.watches {
        let differing = see(roster, |roster| roster.differing(&names));
        differing.iter().for_each(|service| watches.doubt(&format!("{base}/{service}")));
        if !differing.is_empty() {
            watches.doubt(base);
        }
    }
    Ok(see(roster, |roster| roster.compare(&names)))
}
