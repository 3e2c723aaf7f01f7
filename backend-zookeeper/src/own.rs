//! Which nodes hang on our session.
//!
//! Servers since 3.6 say it. Others are asked for the names of the services concerned, and then who owns the nodes of our keys. These are all
//! keys that the session ever tried to write, so what a write of unknown outcome made is found too.

use std::collections::{HashMap, HashSet};

use discovery_core::Key;
use zookeeper_client::Error as ClientError;

use crate::connection::Live;
use crate::load::{list_many, stats};
use crate::tree::{Tree, id_of, name_of, session_of};

/// The nodes of one key.
pub(crate) async fn of_key(live: &Live, tree: &Tree, key: &Key) -> Result<Vec<String>, ClientError> {
    let path = tree.record(key);
    if !live.server.lists_ephemerals() {
        return of_ids(live, HashMap::from([(tree.service(&key.service), HashSet::from([name_of(&path).to_owned()]))]))
            .await;
    }
    let mut own = live.client.list_ephemerals(&path).await?;
    own.retain(|own| without_sequence(own) == path);
    Ok(own)
}

/// The nodes of records by key; `held` are keys that may have some, besides those that the session tried to write.
pub(crate) async fn of_all(live: &Live, tree: &Tree, held: &[Key]) -> Result<HashMap<Key, Vec<String>>, ClientError> {
    let paths = if live.server.lists_ephemerals() {
        live.client.list_ephemerals(tree.root()).await?
    } else {
        let mut ids: HashMap<String, HashSet<String>> = HashMap::new();
        for key in live.tried().iter().chain(held) {
            let id = name_of(&tree.record(key)).to_owned();
            ids.entry(tree.service(&key.service)).or_default().insert(id);
        }
        of_ids(live, ids).await?
    };
    let mut own: HashMap<Key, Vec<String>> = HashMap::new();
    for path in paths {
        if let Some(key) = tree.parse(without_sequence(&path)) {
            own.entry(key).or_default().push(path);
        }
    }
    Ok(own)
}

/// Asks who owns the nodes of these ids, which are given by the path of their service.
async fn of_ids(live: &Live, ids: HashMap<String, HashSet<String>>) -> Result<Vec<String>, ClientError> {
    let bases: Vec<_> = ids.keys().cloned().collect();
    let mut paths = Vec::new();
    for (base, names) in bases.iter().zip(list_many(live, &bases).await?) {
        let wanted = names.iter().filter(|name| ids[base].contains(id_of(name)));
        paths.extend(wanted.map(|name| format!("{base}/{name}")));
    }
    let owners = stats(live, &paths).await?;
    let session = Some(live.client.session_id().0);
    let own = paths.into_iter().zip(owners).filter(|(_, stat)| stat.as_ref().and_then(session_of) == session);
    Ok(own.map(|(path, _)| path).collect())
}

/// The path of a record's node as an operator's would be.
fn without_sequence(path: &str) -> &str {
    let name = name_of(path);
    &path[..path.len() - (name.len() - id_of(name).len())]
}
