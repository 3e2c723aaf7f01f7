//! Following a scope by one-shot watches: a child watch on each parent, and a data watch on each record whose data count.
//!
//! A list of children is compared with the one before, so that what comes or goes costs one list and its own data. Both are read with the
//! watch that tells of the next change, so nothing is lost between.
//!
//! Lists and reads do not wait for each other, as a change that needs both would be seen late behind a slow link. A node is read once at a
//! time, so that of two answers the later one is the newer one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::future::pending;
use std::mem;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use zookeeper_client::Error as ClientError;

use crate::child_watches::ChildWatches;
use crate::connection::Live;
use crate::load::{Found, each, patiently, understand};
use crate::roster::is_unsure;
use crate::routes::Subscription;

/// Groups of records that are read at once.
const READS: usize = 4;

/// A subscription that reads what it is told of.
pub(crate) struct Children<'a> {
    reader: Reader<'a>,
    told: Subscription,
    /// By parent, the names that it had when it was listed last, without those that were found gone since. The parent is a service's name,
    /// or nothing for the base itself. A parent that is not in here was not listed, or was found gone.
    listed: BTreeMap<String, HashSet<String>>,
    /// When a child of the base came or went last.
    changed: i64,
    /// What is to be listed and to be read.
    parents: BTreeSet<String>,
    records: BTreeSet<String>,
    /// What is being listed and being read.
    listing: Option<BoxFuture<'a, Result<Vec<Listed>, ClientError>>>,
    reading: FuturesUnordered<BoxFuture<'a, Result<Vec<Read>, ClientError>>>,
    under_way: HashSet<String>,
    /// What was listed while it was being read, so that nobody knows which of the two answers is the later one.
    doubtful: HashSet<String>,
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    live: &'a Live,
    watches: &'a ChildWatches,
    base: &'a str,
    /// Whether it is about the records of one service, and not about the services and whose records they have.
    one: bool,
}

/// A parent, its children, and when they changed last; `None` if it is gone.
type Listed = (String, Option<(Vec<String>, i64)>);

/// A record's name, and what is there.
pub(crate) type Read = (String, Found);

impl<'a> Children<'a> {
    pub(crate) fn new(
        live: &'a Live,
        watches: &'a ChildWatches,
        base: &'a str,
        service: Option<&str>,
    ) -> Result<Self, ClientError> {
        let told = watches.subscribe(service)?;
        Ok(Self {
            reader: Reader { live, watches, base, one: service.is_some() },
            told,
            listed: BTreeMap::new(),
            changed: 0,
            parents: BTreeSet::new(),
            records: BTreeSet::new(),
            listing: None,
            reading: FuturesUnordered::new(),
            under_way: HashSet::new(),
            doubtful: HashSet::new(),
        })
    }

    pub(crate) fn base(&self) -> &'a str {
        self.reader.base
    }

    /// The names of everything there is, and when a child of the base came or went last. To begin with.
    pub(crate) async fn all(&mut self) -> Result<(Vec<String>, i64), ClientError> {
        self.parents.insert(String::new());
        while !self.parents.is_empty() {
            let lists = self.reader.list(mem::take(&mut self.parents)).await?;
            self.compare(lists);
        }
        Ok((mem::take(&mut self.records).into_iter().collect(), self.changed))
    }

    /// Reads records, in the order of their names. To begin with.
    pub(crate) async fn read(&mut self, names: &[String]) -> Result<Vec<Found>, ClientError> {
        let read = self.reader.read(names.to_vec()).await?;
        self.forget(&read);
        Ok(read.into_iter().map(|(_, found)| found).collect())
    }

    /// Reads a record besides those that changed.
    pub(crate) fn look_at(&mut self, names: Vec<String>) {
        self.records.extend(names);
    }

    /// The next records that changed, as they are now; `None` once the connection was lost.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Read>>, ClientError> {
        loop {
            self.begin();
            tokio::select! {
                told = self.told.next() => {
                    let Some(told) = told else { return Ok(None) };
                    let one = self.reader.one;
                    let is_record = |name: &String| if one { !name.is_empty() } else { name.contains('/') };
                    let (records, parents): (Vec<_>, Vec<_>) = told.into_iter().partition(is_record);
                    self.records.extend(records);
                    self.parents.extend(parents);
                }
                lists = async { match &mut self.listing { Some(listing) => listing.await, None => pending().await } } => {
                    self.listing = None;
                    self.compare(lists?);
                }
                Some(read) = self.reading.next() => {
                    let read = read?;
                    self.forget(&read);
                    return Ok(Some(read));
                }
            }
        }
    }

    /// Begins what can be begun.
    fn begin(&mut self) {
        let reader = self.reader;
        if self.listing.is_none() && !self.parents.is_empty() {
            self.listing = Some(Box::pin(reader.list(mem::take(&mut self.parents))));
        }
        if self.reading.len() < READS {
            let (busy, free): (BTreeSet<_>, BTreeSet<_>) =
                mem::take(&mut self.records).into_iter().partition(|name| self.under_way.contains(name));
            self.records = busy;
            if !free.is_empty() {
                self.under_way.extend(free.iter().cloned());
                self.reading.push(Box::pin(reader.read(free.into_iter().collect())));
            }
        }
    }

    /// Takes in lists: names that one has and the one before had not, or the other way round, have to be looked at.
    fn compare(&mut self, lists: Vec<Listed>) {
        for (parent, children) in lists {
            let before = self.listed.remove(&parent).unwrap_or_default();
            let now = children.map(|(names, changed)| (HashSet::<String>::from_iter(names), changed));
            let none = HashSet::new();
            let changed = before.symmetric_difference(now.as_ref().map_or(&none, |(names, _)| names));
            match (parent.is_empty(), self.reader.one) {
                (true, true) => self.records.extend(changed.cloned()),
                (true, false) => self.parents.extend(changed.cloned()),
                (false, _) => self.records.extend(changed.map(|name| format!("{parent}/{name}"))),
            }
            match now {
                Some((names, changed)) => {
                    let listed = |name: &&String| names.contains(within(name, &parent).unwrap_or_default());
                    self.doubtful.extend(self.under_way.iter().filter(listed).cloned());
                    if parent.is_empty() {
                        self.changed = changed;
                    }
                    self.listed.insert(parent, names);
                }
                // A service that is gone, or is there again by now: if it is in the next list, it came anew.
                None => {
                    if self.listed.get_mut("").is_some_and(|services| services.remove(&parent)) {
                        self.parents.insert(String::new());
                    }
                }
            }
        }
    }

    /// Takes in what is gone: if it is in the next list, it came anew.
    fn forget(&mut self, read: &[Read]) {
        for (name, found) in read {
            self.under_way.remove(name);
            let doubtful = self.doubtful.remove(name);
            match found {
                Found::Gone if doubtful => _ = self.records.insert(name.clone()),
                Found::Gone => {
                    let (parent, name) = name.split_once('/').unwrap_or(("", name));
                    self.listed.get_mut(parent).map(|names| names.remove(name));
                }
                _ => {}
            }
        }
    }
}

/// The name of a record under a parent.
fn within<'a>(record: &'a str, parent: &str) -> Option<&'a str> {
    if parent.is_empty() { Some(record) } else { record.strip_prefix(parent)?.strip_prefix('/') }
}

impl Reader<'_> {
    async fn list(self, parents: BTreeSet<String>) -> Result<Vec<Listed>, ClientError> {
        let parents: Vec<_> = parents.into_iter().collect();
        let names = &parents;
        let lists = each(parents.len(), |at| async move {
            let path = if names[at].is_empty() { self.base.to_owned() } else { format!("{}/{}", self.base, names[at]) };
            loop {
                match patiently(self.live, self.watches.children(&path)).await {
                    Ok((children, stat)) => return Ok(Some((children, stat.pzxid))),
                    Err(ClientError::NoNode) => {}
                    Err(error) => return Err(error),
                }
                // Who waits for a service is told by the list of the services; who waits for the base, by its creation. That it was created
                // just now is no reason to wait.
                if !names[at].is_empty() || !patiently(self.live, self.watches.is_there(&path)).await? {
                    return Ok(None);
                }
            }
        });
        let lists = lists.await?;
        Ok(parents.into_iter().zip(lists).collect())
    }

    async fn read(self, names: Vec<String>) -> Result<Vec<Read>, ClientError> {
        let records = &names;
        let found = each(names.len(), |at| async move {
            let path = format!("{}/{}", self.base, records[at]);
            // Of the records of many services it counts only that they are there, and the lists tell that. What has no sequence is another
            // matter: its data say whether it is a record.
            understand(if self.one || is_unsure(&records[at]) {
                patiently(self.live, self.watches.data(&path)).await
            } else {
                patiently(self.live, self.live.client.get_data(&path)).await
            })
        });
        let found = found.await?;
        Ok(names.into_iter().zip(found).collect())
    }
}
