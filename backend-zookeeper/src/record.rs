//! Writing and removing records, guarded by who owns the nodes of an id.
//!
//! Requests of a session are processed in the order in which they were sent, also those whose answers nobody waited for. So asking for the
//! session's own nodes finds out what became of a write of unknown outcome, and several requests can be on their way at once: an update and
//! a removal take one round trip if nothing is out of order.

use discovery_core::store::{Lease, Owner, Written as Answer};
use discovery_core::{Key, Result};
use futures_util::future::join3;
use zookeeper_client::Error as ClientError;

use crate::connection::{Live, Written};
use crate::error::classify;
use crate::place::{Node, Place, Sibling};
use crate::tree::Tree;

/// Writes a record on a session: over anything if there is no previous owner, else only over what is absent, nobody's, or its own, and was
/// not taken from it (R6).
pub(crate) async fn write(
    live: &Live,
    tree: &Tree,
    lease: &Lease,
    key: &Key,
    value: &[u8],
    previous: Option<&Owner>,
) -> Result<Answer> {
    if lease.id != live.id() {
        return Ok(Answer::LeaseLost);
    }
    let place = Place::new(live, tree, key);
    live.tried().insert(key.clone());
    let known = live.written().get(key).cloned().filter(|_| previous.is_some());
    let owners = Owners { session: place.session(), former: previous.map(|owner| owner.lease.id.cast_signed()) };
    match put(&place, &owners, value, known).await {
        Ok(Put::Stands(Node { path, stat })) => {
            let written = Written { path: path.clone(), mzxid: stat.mzxid, version: stat.version };
            live.written().insert(key.clone(), written);
            Ok(Answer::Done(Owner { lease: lease.clone(), mark: path.into() }))
        }
        Ok(Put::Refused(by)) => {
            live.written().remove(key);
            live.tried().remove(key);
            Ok(Answer::Superseded(by.map(i64::cast_unsigned)))
        }
        Err(ClientError::SessionExpired) => Ok(Answer::LeaseLost),
        Err(error) => Err(classify(error, "write", place.path())),
    }
}

/// Whose nodes are ours: those of the session, and those of the one that a previous write was made on.
struct Owners {
    session: i64,
    /// `None` for a registration that takes over whatever stands there.
    former: Option<i64>,
}

impl Owners {
    /// Whether a node is of somebody else who counts on it.
    fn is_foreign(&self, node: &Sibling) -> bool {
        !node.superseded && node.session.is_some_and(|session| session != self.session && Some(session) != self.former)
    }

    /// Whether a node says that the record was taken from us.
    fn is_lost(&self, node: &Sibling) -> bool {
        let ours = node.session == Some(self.session) || node.session.is_some() && node.session == self.former;
        self.is_foreign(node) || ours && node.superseded
    }
}

/// What came of a write.
enum Put {
    /// This node was written.
    Stands(Node),
    /// Somebody newer owns the record: the session, where it is known.
    Refused(Option<i64>),
}

async fn put(place: &Place<'_>, owners: &Owners, value: &[u8], known: Option<Written>) -> Result<Put, ClientError> {
    // Whoever takes over writes on our node, so if it is as we left it, it still counts.
    let (updated, own, by_hand) = join3(place.set_known(known, value), place.own(), place.is_by_hand()).await;
    let (own, by_hand) = (own?, by_hand?);
    if let Some(node) = updated
        && !by_hand
        && own == [node.path.as_str()]
    {
        return Ok(Put::Stands(node));
    }
    let mut newest = None;
    if owners.former.is_some() || !own.is_empty() {
        let (before, _) = place.siblings().await?;
        if owners.former.is_some()
            && let Some(lost) = before.iter().find(|node| owners.is_lost(node))
        {
            for path in &own {
                place.delete(path).await?;
            }
            return Ok(Put::Refused(lost.session));
        }
        newest = before.into_iter().max_by_key(|node| node.created);
    }
    let node = match newest.filter(|node| node.session == Some(owners.session) && !node.superseded) {
        Some(mine) => place.set(mine.path, mine.version, value).await?,
        None => place.create(value).await?,
    };
    // Success is only a node of our session.
    if node.stat.ephemeral_owner != owners.session {
        return Ok(Put::Refused(None));
    }
    match clear(place, owners, &node).await {
        Ok(None) => Ok(Put::Stands(node)),
        Ok(Some(newer)) => place.delete(&node.path).await.map(|()| Put::Refused(newer.session)),
        Err(ClientError::NoAuth) => {
            // The id is somebody's whose nodes we may not touch, so ours must not count instead of theirs.
            place.delete(&node.path).await?;
            Err(ClientError::NoAuth)
        }
        Err(error) => Err(error),
    }
}

/// Puts the other nodes of the id out of the way, or answers the one for which ours has to go.
///
/// Looking afterwards is what makes it safe: of two that do this at the same time, at least the later one sees both nodes.
async fn clear(place: &Place<'_>, owners: &Owners, ours: &Node) -> Result<Option<Sibling>, ClientError> {
    let (mut others, hidden) = place.siblings().await?;
    if hidden {
        return Err(ClientError::NoAuth);
    }
    others.retain(|node| node.path != ours.path);
    // Who comes back yields to anybody; who comes for the first time, to whoever came still later.
    let yields = |node: &Sibling| owners.former.is_some() || node.created > ours.stat.czxid;
    if let Some(newer) = others.iter().position(|node| owners.is_foreign(node) && yields(node)) {
        return Ok(Some(others.swap_remove(newer)));
    }
    for node in others.iter().filter(|node| node.created < ours.stat.czxid) {
        let strangers = node.session.is_some_and(|session| session != owners.session && Some(session) != owners.former);
        match (strangers, node.superseded) {
            (true, true) => {} // Its owner has not looked yet.
            (true, false) => place.supersede(&node.path).await?,
            (false, _) => place.delete(&node.path).await?,
        }
    }
    Ok(None)
}

/// Removes the nodes of a record that hang on its owner's session, of which there may be several after writes of unknown outcome, and
/// what an operator has put over it.
pub(crate) async fn remove(live: &Live, tree: &Tree, key: &Key, owner: &Owner) -> Result<()> {
    let place = Place::new(live, tree, key);
    let removed = async {
        let known = live.written().remove(key);
        let nodes = if owner.lease.id == live.id() {
            // What is asked for after the removal shows whether anything is left.
            let (_, left, by_hand) = join3(place.delete_known(known), place.own(), place.is_by_hand()).await;
            let mut left = left?;
            left.extend(by_hand?.then(|| place.path().to_owned()));
            left
        } else {
            // The session has ended, as far as this process knows; the server may still have its nodes.
            let former = owner.lease.id.cast_signed();
            let ours = |node: &Sibling| node.session.is_none_or(|session| session == former);
            place.siblings().await?.0.into_iter().filter(ours).map(|node| node.path).collect()
        };
        for path in nodes {
            place.delete(&path).await?;
        }
        if owner.lease.id == live.id() {
            live.tried().remove(key);
        }
        Ok(())
    };
    removed.await.map_err(|error| classify(error, "remove", place.path()))
}
