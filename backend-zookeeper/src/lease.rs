//! The lease is the session: it is there while the client is, so granting and renewing are questions, and giving up removes what hangs on it.

use std::collections::HashSet;

use discovery_core::store::{Audit, Lease, Renewal};
use discovery_core::{Error, ErrorKind, Key, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use zookeeper_client::{Error as ClientError, SessionState};

use crate::connection::Live;
use crate::error::{classify, of_state};
use crate::load::{Found, read};
use crate::own;
use crate::place::delete;
use crate::tree::Tree;

/// Removals under way at once; more would only queue at the server.
const AT_ONCE: usize = 64;

/// Answers the session and the timeout that the server granted.
pub(crate) async fn grant(live: &Live, tree: &Tree) -> Result<Lease> {
    ask(live, tree).await.map_err(|error| classify(error, "open a lease on", tree.root()))?;
    Ok(Lease { id: live.id(), ttl: live.client.session_timeout() })
}

/// Makes the server hear of the session. The client does that by itself as well; what is asked for is the answer.
pub(crate) async fn renew(live: &Live, tree: &Tree, lease: &Lease) -> Result<Renewal> {
    if lease.id != live.id() {
        return Ok(Renewal::Lost);
    }
    match live.client.state() {
        SessionState::SyncConnected => {}
        SessionState::Expired => return Ok(Renewal::Lost),
        state => return Err(of_state(state, tree.root())),
    }
    match ask(live, tree).await {
        Ok(()) => Ok(Renewal::Held(live.client.session_timeout())),
        Err(ClientError::SessionExpired) => Ok(Renewal::Lost),
        Err(error) => Err(classify(error, "renew", &name(lease))),
    }
}

/// Asks for any answer.
pub(crate) async fn ask(live: &Live, tree: &Tree) -> Result<(), ClientError> {
    live.client.check_stat(tree.root()).await.map(drop)
}

/// Compares the session's nodes with those that should be there, and their versions with what was written.
pub(crate) async fn audit(live: &Live, tree: &Tree, lease: &Lease, held: &[Key]) -> Result<Audit> {
    if lease.id != live.id() {
        return Err(Error::new(ErrorKind::Unavailable, "audit", name(lease), "the session has ended"));
    }
    compare(live, tree, held).await.map_err(|error| classify(error, "audit", &name(lease)))
}

async fn compare(live: &Live, tree: &Tree, held: &[Key]) -> Result<Audit, ClientError> {
    let own = own::of_all(live, tree, held).await?;
    // Our node, and the one that an operator may have put over it.
    let paths: Vec<_> = held
        .iter()
        .flat_map(|key| {
            let node = own.get(key).and_then(|paths| paths.first()).cloned();
            [node.unwrap_or_else(|| tree.record(key)), tree.record(key)]
        })
        .collect();
    let found = read(live, &paths).await?;
    let mut written = live.written();
    // What is gone must not be written or removed by its path any more, as the path may become another session's.
    written.retain(|key, node| own.get(key).is_some_and(|paths| paths.contains(&node.path)) || !held.contains(key));
    let intact = |(key, at): (&Key, usize)| {
        let (node, by_hand) = (&found[2 * at], &found[2 * at + 1]);
        let known = written.get(key);
        let same = match node {
            Found::Record(_, stat) => {
                known.is_some_and(|known| (&known.path, known.mzxid) == (&paths[2 * at], stat.mzxid))
            }
            // It stands, and nobody who may not read it can say more.
            Found::Denied => true,
            Found::Superseded(_) | Found::Parent | Found::Gone => false,
        };
        same && own.get(key).is_some_and(|paths| paths.len() == 1) && !matches!(by_hand, Found::Record(..))
    };
    let missing = held.iter().zip(0..).filter(|(key, at)| !intact((key, *at))).map(|(key, _)| key.clone()).collect();
    let held: HashSet<_> = held.iter().collect();
    Ok(Audit { missing, orphans: own.into_keys().filter(|key| !held.contains(key)).collect() })
}

/// Removes everything that hangs on the session. The session stays, as the subscriptions need it.
pub(crate) async fn revoke(live: &Live, tree: &Tree, lease: &Lease) -> Result<()> {
    if lease.id != live.id() {
        return Ok(()); // It has ended, and its nodes with it.
    }
    let removed = async {
        let own = own::of_all(live, tree, &[]).await?.into_values().flatten();
        let removals = stream::iter(own.map(|path| async move { delete(&live.client, &path).await }));
        removals.buffer_unordered(AT_ONCE).try_collect::<()>().await
    };
    match removed.await {
        Ok(()) | Err(ClientError::SessionExpired) => Ok(()),
        Err(error) => Err(classify(error, "revoke", &name(lease))),
    }
}

fn name(lease: &Lease) -> String {
    format!("session {:#x}", lease.id)
}
