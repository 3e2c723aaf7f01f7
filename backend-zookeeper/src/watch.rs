//! Following a scope: the watch first, then the set, then the nodes that changed.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use discovery_core::store::{RawChange, RawRecord, Scope, Sink};
use discovery_core::{Error, ErrorKind};
use zookeeper_client::Error as ClientError;

use crate::connection::Live;
use crate::error::classify;
use crate::load::{Found, list, patiently, read};
use crate::members::Members;
use crate::roster::{Roster, load};
use crate::tree::{Tree, name_of};

/// What a subscription knows; its reconciliation compares it with the store.
#[derive(Debug)]
pub(crate) enum Known {
    Service(Mutex<Members>),
    Names(Mutex<Roster>),
}

impl Known {
    fn apply(&self, read: Vec<(String, Found)>) -> (Vec<RawChange>, Vec<String>) {
        match self {
            Self::Service(members) => see(members, |members| members.apply(read)),
            Self::Names(roster) => (see(roster, |roster| roster.apply(read)), Vec::new()),
        }
    }
}

/// Looks at what is known, or changes it.
pub(crate) fn see<K, T>(known: &Mutex<K>, look: impl FnOnce(&mut K) -> T) -> T {
    look(&mut known.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Delivers until the connection is lost, and says why.
///
/// The watch is armed before the set is read, so a change between the two is told, and looked at once more. What is told is only that a
/// node changed; reading it yields the state after the change or a later one, so nothing goes back.
pub(crate) async fn follow(live: &Live, tree: &Tree, scope: &Scope, sink: &dyn Sink) -> Error {
    let base = tree.base(scope);
    match deliver(live, &base, scope, sink).await {
        Ok(()) => Error::new(ErrorKind::Unavailable, "watch", base, "the connection was lost, and the watch with it"),
        Err(error) => classify(error, "watch", &base),
    }
}

async fn deliver(live: &Live, base: &str, scope: &Scope, sink: &dyn Sink) -> Result<(), ClientError> {
    let service = match scope {
        Scope::Service(_) => Some(name_of(base)),
        Scope::Names => None,
    };
    let mut news = patiently(live, live.events.subscribe(service)).await?;
    let (known, revision, records) = match scope {
        Scope::Service(_) => load_service(live, base).await?,
        Scope::Names => {
            let roster = Roster::new(base.to_owned(), load(live, base).await?);
            let records = roster.records();
            (Known::Names(Mutex::new(roster)), 1, records)
        }
    };
    let followed = Followed::new(live, scope, known);
    sink.full(revision, records);
    while let Some(names) = news.next().await {
        let mut changes = Vec::new();
        let mut names: Vec<_> = names.into_iter().collect();
        while !names.is_empty() {
            let paths: Vec<_> = names.iter().map(|name| format!("{base}/{name}")).collect();
            let found = read(live, &paths).await?;
            let (some, more) = followed.known.apply(names.into_iter().zip(found).collect());
            changes.extend(some);
            names = more;
        }
        changes.sort_by_key(revision_of);
        if let Some(newest) = changes.last().map(revision_of) {
            sink.changes(newest, changes);
        }
    }
    Ok(())
}

/// Reads the set of a service. Its revision is when a record came or went last: whatever happens later has a higher one, also if it
/// happens before all records are read.
async fn load_service(live: &Live, base: &str) -> Result<(Known, u64, Vec<RawRecord>), ClientError> {
    let (names, changed) = list(live, base).await?.unwrap_or_default();
    let paths: Vec<_> = names.iter().map(|name| format!("{base}/{name}")).collect();
    let found = read(live, &paths).await?;
    let mut members = Members::new(base.to_owned(), changed);
    let (changes, _) = members.apply(names.into_iter().zip(found).collect());
    let records = changes.into_iter().filter_map(|change| match change {
        RawChange::Put(record) => Some(record),
        RawChange::Delete(..) => None,
    });
    let records = records.collect();
    Ok((Known::Service(Mutex::new(members)), changed.unsigned_abs(), records))
}

fn revision_of(change: &RawChange) -> u64 {
    match change {
        RawChange::Put(record) => record.revision,
        RawChange::Delete(_, at) => *at,
    }
}

/// Shows reconciliation what is known, for as long as the scope is followed.
struct Followed<'a> {
    live: &'a Live,
    scope: &'a Scope,
    known: Arc<Known>,
}

impl<'a> Followed<'a> {
    fn new(live: &'a Live, scope: &'a Scope, known: Known) -> Self {
        let known = Arc::new(known);
        live.followed().insert(scope.clone(), Arc::downgrade(&known));
        Self { live, scope, known }
    }
}

impl Drop for Followed<'_> {
    fn drop(&mut self) {
        let mut followed = self.live.followed();
        // A newer subscription of the same scope may stand there already.
        if followed.get(self.scope).is_some_and(|known| Weak::ptr_eq(known, &Arc::downgrade(&self.known))) {
            followed.remove(self.scope);
        }
    }
}
