//! Following a scope: the watch first, then the set, then the nodes that changed.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use discovery_core::store::{RawChange, Scope, Sink};
use discovery_core::{Error, ErrorKind};
use zookeeper_client::Error as ClientError;

use crate::children::{Children, Read};
use crate::connection::{Live, Watches};
use crate::error::classify;
use crate::load::{Found, list, patiently, read, read_in_pages};
use crate::members::Members;
use crate::roster::{Names, Roster, add, is_unsure, load};
use crate::routes::Subscription;
use crate::tree::{Tree, name_of};

/// What a subscription knows; its reconciliation compares it with the store.
#[derive(Debug)]
pub(crate) enum Known {
    Service(Mutex<Members>),
    Names(Mutex<Roster>),
}

impl Known {
    fn apply(&self, read: Vec<Read>) -> (Vec<RawChange>, Vec<String>) {
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
    let mut news = News::open(live, base, scope).await?;
    let (known, revision) = match scope {
        Scope::Service(_) => news.load_service(sink).await?,
        Scope::Names => {
            let roster = Roster::new(base.to_owned(), news.load_names().await?);
            sink.part(roster.records());
            (Known::Names(Mutex::new(roster)), 1)
        }
    };
    let followed = Followed::new(live, scope, known);
    sink.full(revision, Vec::new());
    while let Some(read) = news.next().await? {
        let (mut changes, more) = followed.known.apply(read);
        news.look_at(more);
        changes.sort_by_key(RawChange::revision);
        if let Some(newest) = changes.last().map(RawChange::revision) {
            sink.changes(newest, changes);
        }
    }
    Ok(())
}

/// How a subscription hears of changes, and reads what it hears of. Names are those below the base.
enum News<'a> {
    /// By the recursive watch, whatever is read.
    Recursive { live: &'a Live, base: &'a str, told: Subscription, besides: Vec<String> },
    /// By the watches that come with each read.
    Children(Box<Children<'a>>),
}

impl<'a> News<'a> {
    async fn open(live: &'a Live, base: &'a str, scope: &Scope) -> Result<Self, ClientError> {
        let service = match scope {
            Scope::Service(_) => Some(name_of(base)),
            Scope::Names => None,
        };
        Ok(match &live.watches {
            Watches::Recursive(events) => {
                let told = patiently(live, events.subscribe(service)).await?;
                Self::Recursive { live, base, told, besides: Vec::new() }
            }
            Watches::Children(watches) => Self::Children(Box::new(Children::new(live, watches, base, service)?)),
        })
    }

    /// Reads a record besides those that changed.
    fn look_at(&mut self, names: Vec<String>) {
        match self {
            Self::Recursive { besides, .. } => besides.extend(names),
            Self::Children(children) => children.look_at(names),
        }
    }

    /// The next records that changed, as they are now; `None` once the connection was lost.
    async fn next(&mut self) -> Result<Option<Vec<Read>>, ClientError> {
        match self {
            Self::Recursive { live, base, told, besides } => {
                let names = match mem::take(besides) {
                    none if none.is_empty() => match told.next().await {
                        Some(told) => told.into_iter().collect(),
                        None => return Ok(None),
                    },
                    besides => besides,
                };
                let found = read(live, &paths(base, &names)).await?;
                Ok(Some(names.into_iter().zip(found).collect()))
            }
            Self::Children(children) => children.next().await,
        }
    }

    /// Reads the set of a service. Its revision is when a record came or went last: whatever happens later has a higher one, also if it
    /// happens before all records are read.
    async fn load_service(&mut self, sink: &dyn Sink) -> Result<(Known, u64), ClientError> {
        let (base, (names, changed)) = match self {
            Self::Recursive { live, base, .. } => (*base, list(live, base).await?.unwrap_or_default()),
            Self::Children(children) => (children.base(), children.all().await?),
        };
        let mut members = Members::new(base.to_owned(), changed);
        let mut unread = names.iter();
        let mut take = |found: Vec<Found>| {
            let read = found.into_iter().zip(unread.by_ref()).map(|(found, name)| (name.clone(), found));
            let (changes, _) = members.apply(read.collect());
            let records = changes.into_iter().filter_map(|change| match change {
                RawChange::Put(record) => Some(record),
                RawChange::Delete(..) => None,
            });
            sink.part(records.collect());
        };
        match self {
            Self::Recursive { live, base, .. } => read_in_pages(live, &paths(base, &names), &mut take).await?,
            Self::Children(children) => take(children.read(&names).await?),
        }
        Ok((Known::Service(Mutex::new(members)), changed.unsigned_abs()))
    }

    async fn load_names(&mut self) -> Result<Names, ClientError> {
        match self {
            Self::Recursive { live, base, .. } => load(live, base).await,
            Self::Children(children) => {
                let (unsure, names): (Vec<_>, Vec<_>) =
                    children.all().await?.0.into_iter().partition(|name| is_unsure(name));
                let (mut names, found) = (names.into_iter().collect(), children.read(&unsure).await?);
                add(&mut names, unsure, &found);
                Ok(names)
            }
        }
    }
}

fn paths(base: &str, names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("{base}/{name}")).collect()
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
