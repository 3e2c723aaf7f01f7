//! What a subscription to the list of services knows: which ids each service has, and none of their data.
//!
//! A sequence behind a name proves a record, or what is left of one: a node whose owner was superseded counts here until it is gone. What
//! has no sequence is looked at, as it may be a parent of another namespace; an empty one looks like an empty record, and counts as a parent.

use std::collections::{BTreeMap, BTreeSet};

use discovery_core::store::{RawChange, RawRecord};
use zookeeper_client::Error as ClientError;

use crate::connection::Live;
use crate::load::{Found, list, list_many, read};
use crate::tree::{id_of, name_of};

/// The records of all services as `{service}/{node}`.
pub(crate) type Names = BTreeSet<String>;

/// The ids of all services as `{service}/{id}`, each with its nodes.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// The path of the root.
    base: String,
    ids: BTreeMap<String, (u64, BTreeSet<String>)>,
    /// Numbers what is shown; nobody needs the store's own numbers for names.
    revision: u64,
}

impl Roster {
    /// Makes a roster of what was loaded.
    pub(crate) fn new(base: String, names: Names) -> Self {
        let mut roster = Self { base, ids: BTreeMap::new(), revision: 1 };
        for name in names {
            roster.ids.entry(id_of(&name).to_owned()).or_insert((1, BTreeSet::new())).1.insert(name);
        }
        roster
    }

    /// Everything, as a set.
    pub(crate) fn records(&self) -> Vec<RawRecord> {
        self.ids.iter().map(|(id, (revision, _))| self.record(id, *revision)).collect()
    }

    fn record(&self, id: &str, revision: u64) -> RawRecord {
        RawRecord { key: format!("{}/{id}", self.base), revision, value: Vec::new() }
    }

    /// Takes in what was read, and answers what changed by it.
    pub(crate) fn apply(&mut self, read: Vec<(String, Found)>) -> Vec<RawChange> {
        let mut changes = Vec::new();
        for (name, found) in read {
            let id = id_of(&name).to_owned();
            self.revision += 1;
            let (revision, known) = (self.revision, self.ids.contains_key(&id));
            let there = is_there(&name, &found);
            if there {
                self.ids.entry(id.clone()).or_insert((revision, BTreeSet::new())).1.insert(name);
            } else if let Some((_, nodes)) = self.ids.get_mut(&id) {
                nodes.remove(&name);
                if nodes.is_empty() {
                    self.ids.remove(&id);
                    changes.push(RawChange::Delete(format!("{}/{id}", self.base), revision));
                }
            }
            if there && !known {
                changes.push(RawChange::Put(self.record(&id, revision)));
            }
        }
        changes
    }

    /// How many ids these records have, and which of them are not known, as if they came now.
    pub(crate) fn compare(&self, names: &Names) -> (usize, Vec<(String, u64)>) {
        let ids: BTreeSet<_> = names.iter().map(|name| id_of(name)).collect();
        let unknown = ids.iter().filter(|id| !self.ids.contains_key(**id));
        let unknown = unknown.map(|id| (format!("{}/{id}", self.base), self.revision + 1));
        (ids.len(), unknown.collect())
    }

    /// Which services these records show otherwise than known.
    pub(crate) fn differing(&self, names: &Names) -> BTreeSet<String> {
        let known: Names = self.ids.values().flat_map(|(_, nodes)| nodes.iter().cloned()).collect();
        let service = |name: &String| name.split_once('/').map(|(service, _)| service.to_owned());
        known.symmetric_difference(names).filter_map(service).collect()
    }
}

fn is_there(name: &str, found: &Found) -> bool {
    match found {
        Found::Gone => false,
        Found::Record(value, _) => !value.is_empty(),
        Found::Superseded(_) | Found::Denied | Found::Parent => !is_unsure(name),
    }
}

/// Lists the records of all services.
pub(crate) async fn load(live: &Live, base: &str) -> Result<Names, ClientError> {
    let services = list(live, base).await?.map_or_else(Vec::new, |(services, _)| services);
    let paths: Vec<_> = services.iter().map(|service| format!("{base}/{service}")).collect();
    let (mut names, mut unsure) = (Names::new(), Vec::new());
    for (service, nodes) in services.iter().zip(list_many(live, &paths).await?) {
        for node in nodes {
            let name = format!("{service}/{node}");
            if is_unsure(&name) { unsure.push(name) } else { _ = names.insert(name) }
        }
    }
    let paths: Vec<_> = unsure.iter().map(|name| format!("{base}/{name}")).collect();
    add(&mut names, unsure, &read(live, &paths).await?);
    Ok(names)
}

/// Whether a name alone does not tell that a node is a record.
pub(crate) fn is_unsure(name: &str) -> bool {
    let node = name_of(name);
    id_of(node) == node
}

/// Adds those of the unsure that are records.
pub(crate) fn add(names: &mut Names, unsure: Vec<String>, found: &[Found]) {
    names.extend(unsure.into_iter().zip(found).filter(|(name, found)| is_there(name, found)).map(|(name, _)| name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_listed_while_one_node_is_left() {
        let names = ["pay/a-0000000001", "pay/a-0000000002"].map(str::to_owned);
        let mut roster = Roster::new("/d".to_owned(), names.clone().into());
        assert_eq!((roster.compare(&names.clone().into()), roster.records().len()), ((1, vec![]), 1));
        assert!(roster.apply(vec![(names[0].clone(), Found::Gone)]).is_empty());
        let changes = roster.apply(vec![(names[1].clone(), Found::Gone), ("b/c-0000000000".to_owned(), Found::Denied)]);
        assert!(matches!(&changes[..], [RawChange::Delete(key, 3), RawChange::Put(put)]
            if key == "/d/pay/a" && put.key == "/d/b/c" && put.revision == 4));
        assert_eq!(roster.differing(&names.clone().into()).into_iter().collect::<Vec<_>>(), ["b", "pay"]);
        assert_eq!(roster.compare(&names.into()), (1, vec![("/d/pay/a".to_owned(), 5)]));
    }
}
