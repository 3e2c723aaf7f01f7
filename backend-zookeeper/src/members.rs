//! What a subscription knows of the records of one service.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use discovery_core::store::{RawChange, RawRecord};

use crate::load::Found;
use crate::tree::id_of;

/// The nodes of a service, and for each id the node that counts: the newest.
#[derive(Debug)]
pub(crate) struct Members {
    /// The path of the service's node.
    base: String,
    /// By name; `None` for a node that is no record.
    nodes: HashMap<String, Option<Stamp>>,
    ids: BTreeMap<String, Identity>,
    /// When a node came or went last, as far as the names were compared.
    changed: i64,
    /// The last id whose version was compared.
    compared: String,
    /// Nodes that the last reconciliation saw written as nobody told, and when they were.
    suspects: HashMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stamp {
    created: i64,
    written: i64,
}

/// An id with at least one node.
#[derive(Debug, Default)]
struct Identity {
    names: BTreeSet<String>,
    /// The node that was shown last, and the transaction that wrote it.
    shown: Option<(String, i64)>,
    revision: u64,
}

impl Members {
    pub(crate) fn new(base: String, changed: i64) -> Self {
        let (nodes, ids, suspects) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        Self { base, nodes, ids, changed, compared: String::new(), suspects }
    }

    /// Takes in what was read, and answers what changed by it, and which nodes have to be read besides: those that count again because a
    /// newer one is gone.
    pub(crate) fn apply(&mut self, read: Vec<(String, Found)>) -> (Vec<RawChange>, Vec<String>) {
        let mut values = HashMap::new();
        let (mut touched, mut changes) = (BTreeSet::new(), Vec::new());
        for (name, found) in read {
            let id = id_of(&name).to_owned();
            let suspect = self.suspects.remove(&name);
            let known = self.nodes.get(&name).copied().flatten();
            let gone = matches!(found, Found::Gone);
            let stamp = match found {
                Found::Gone | Found::Parent | Found::Superseded(_) => None,
                // What it was before stays; if nothing is known of it, it counts as unreadable.
                Found::Denied => {
                    values.entry(name.clone()).or_insert_with(Vec::new);
                    Some(known.unwrap_or_default())
                }
                Found::Record(value, stat) => {
                    values.insert(name.clone(), value);
                    Some(Stamp { created: stat.czxid, written: stat.mzxid })
                }
            };
            if let Some(written) = suspect.filter(|_| gone) {
                match self.ids.get_mut(&id) {
                    Some(identity) => identity.revision = identity.revision.max(written),
                    // It came and went without being told of. Reconciliation has seen it, and would miss it for ever.
                    None => changes.push(RawChange::Delete(format!("{}/{id}", self.base), written + 1)),
                }
            }
            let names = &mut self.ids.entry(id.clone()).or_default().names;
            if stamp.is_some() {
                names.insert(name.clone())
            } else {
                names.remove(&name)
            };
            if gone {
                self.nodes.remove(&name)
            } else {
                self.nodes.insert(name, stamp)
            };
            touched.insert(id);
        }
        let mut missing = Vec::new();
        for id in touched {
            match self.show(&id, &mut values) {
                Shown::Changed(change) => changes.push(change),
                Shown::Unread(name) => missing.push(name),
                Shown::Same => {}
            }
        }
        (changes, missing)
    }

    /// Decides which node of an id counts.
    fn show(&mut self, id: &str, values: &mut HashMap<String, Vec<u8>>) -> Shown {
        let Some(identity) = self.ids.get_mut(id) else { return Shown::Same };
        let stamp = |name: &String| self.nodes.get(name).copied().flatten().unwrap_or_default();
        let key = format!("{}/{id}", self.base);
        let Some(newest) = identity.names.iter().max_by_key(|name| stamp(name).created) else {
            let gone = self.ids.remove(id).filter(|identity| identity.shown.is_some());
            return gone.map_or(Shown::Same, |gone| Shown::Changed(RawChange::Delete(key, gone.revision + 1)));
        };
        let next = (newest.clone(), stamp(newest).written);
        if identity.shown.as_ref() == Some(&next) {
            return Shown::Same;
        }
        let Some(value) = values.remove(newest) else { return Shown::Unread(next.0) };
        // An older node that counts again was written before the one that is gone. Its return is newer, and so is its revision: the
        // removal was a transaction of its own, so the next number is still below whatever is written later.
        identity.revision = next.1.unsigned_abs().max(identity.revision + 1);
        identity.shown = Some(next);
        Shown::Changed(RawChange::Put(RawRecord { key, revision: identity.revision, value }))
    }

    /// How many records there are.
    pub(crate) fn count(&self) -> usize {
        self.ids.values().filter(|identity| identity.shown.is_some()).count()
    }

    /// Whether the names are known to be those of this time.
    pub(crate) fn is_of(&self, changed: i64) -> bool {
        self.changed == changed
    }

    /// Compares names of a time: how many records they are, and which of them are not known.
    pub(crate) fn compare(&mut self, names: &[String], changed: i64) -> (usize, Vec<String>) {
        let records = names.iter().filter(|name| !matches!(self.nodes.get(*name), Some(None)));
        let count = records.map(|name| id_of(name)).collect::<HashSet<_>>().len();
        let unknown: Vec<_> = names.iter().filter(|name| !self.nodes.contains_key(*name)).cloned().collect();
        if unknown.is_empty() && names.len() == self.nodes.len() {
            self.changed = changed;
        }
        (count, unknown)
    }

    /// The nodes that count of the next ids, from the beginning again behind the last.
    pub(crate) fn next_page(&mut self, length: usize) -> Vec<String> {
        let behind = (Bound::Excluded(self.compared.as_str()), Bound::Unbounded);
        let mut page: Vec<_> = self.ids.range::<str, _>(behind).take(length).collect();
        if page.is_empty() {
            page = self.ids.iter().take(length).collect();
        }
        let last = page.last().map_or_else(String::new, |(id, _)| (*id).clone());
        let names = page.into_iter().filter_map(|(_, identity)| Some(identity.shown.as_ref()?.0.clone())).collect();
        self.compared = last;
        names
    }

    /// Which nodes a reconciliation found otherwise than known. Each is to be looked at again, as a watch may have been lost.
    pub(crate) fn differing(&mut self, names: &[String], found: &[Found]) -> Vec<String> {
        self.suspects.clear();
        let mut differing = Vec::new();
        for (name, found) in names.iter().zip(found) {
            let known = self.nodes.get(name);
            let differs = match found {
                Found::Record(_, stat) => known.copied().flatten().is_none_or(|known| known.written != stat.mzxid),
                Found::Gone => known.is_some(),
                Found::Superseded(_) | Found::Parent | Found::Denied => false,
            };
            if differs {
                if let Found::Record(_, stat) = found {
                    self.suspects.insert(name.clone(), stat.mzxid.unsigned_abs());
                }
                differing.push(name.clone());
            }
        }
        differing
    }
}

enum Shown {
    Same,
    Changed(RawChange),
    Unread(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use zookeeper_client::Stat;

    fn stat(created: i64, written: i64) -> Stat {
        Stat {
            czxid: created,
            mzxid: written,
            pzxid: created,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 7,
            data_length: 1,
            num_children: 0,
        }
    }

    fn record(created: i64, written: i64) -> Found {
        Found::Record(vec![u8::try_from(written).unwrap()], stat(created, written))
    }

    /// A key, its revision, and the value's first byte unless it was removed.
    type Plain = (String, u64, Option<u8>);

    fn apply(members: &mut Members, read: Vec<(&str, Found)>) -> (Vec<Plain>, Vec<String>) {
        let (changes, missing) = members.apply(read.into_iter().map(|(name, f)| (name.to_owned(), f)).collect());
        let plain = |change| match change {
            RawChange::Put(put) => (put.key, put.revision, put.value.first().copied()),
            RawChange::Delete(key, at) => (key, at, None),
        };
        (changes.into_iter().map(plain).collect(), missing)
    }

    fn put(revision: u64, value: u8) -> Vec<Plain> {
        vec![("/d/pay/a".to_owned(), revision, Some(value))]
    }

    #[test]
    fn r06_of_several_nodes_the_newest_counts_and_a_takeover_is_one_change() {
        let mut members = Members::new("/d/pay".to_owned(), 0);
        assert_eq!(apply(&mut members, vec![("a-0000000001", record(10, 10))]).0, put(10, 10));
        assert_eq!(apply(&mut members, vec![("a-0000000002", record(11, 11))]).0, put(11, 11));
        // The former owner updates once more, is told, and goes.
        assert_eq!(apply(&mut members, vec![("a-0000000001", record(10, 12))]).0, []);
        assert_eq!(apply(&mut members, vec![("a-0000000001", Found::Superseded(stat(10, 13)))]), (vec![], vec![]));
        assert_eq!(apply(&mut members, vec![("a-0000000001", Found::Gone)]), (vec![], vec![]));
        assert_eq!(members.count(), 1);
    }

    #[test]
    fn an_older_node_that_counts_again_is_read_and_is_news() {
        let mut members = Members::new("/d/pay".to_owned(), 0);
        apply(&mut members, vec![("a-0000000001", record(10, 10)), ("a", record(20, 20))]);
        let (changes, missing) = apply(&mut members, vec![("a", Found::Gone)]);
        assert_eq!((changes, missing), (vec![], vec!["a-0000000001".to_owned()]));
        assert_eq!(apply(&mut members, vec![("a-0000000001", record(10, 10))]).0, put(21, 10));
        let (changes, _) = apply(&mut members, vec![("a-0000000001", Found::Gone)]);
        assert_eq!(changes, [("/d/pay/a".to_owned(), 22, None)]);
        assert_eq!(members.count(), 0);
    }

    #[test]
    fn w06_a_node_that_may_not_be_read_hides_nobody_and_keeps_its_value() {
        let mut members = Members::new("/d/pay".to_owned(), 0);
        apply(&mut members, vec![("a", record(10, 10))]);
        assert_eq!(apply(&mut members, vec![("a", Found::Denied)]).0, []);
        let (changes, _) = apply(&mut members, vec![("b", Found::Denied), ("c", Found::Parent)]);
        assert_eq!(changes, [("/d/pay/b".to_owned(), 1, None)]);
    }

    #[test]
    fn w08_what_differs_is_looked_at_and_what_came_and_went_is_no_loss() {
        let mut members = Members::new("/d/pay".to_owned(), 0);
        apply(&mut members, vec![("a", record(1, 1)), ("b", record(2, 2)), ("c", record(3, 3))]);
        let names = ["a", "b", "c", "d", "e"].map(str::to_owned);
        let found = [record(1, 1), record(2, 4), Found::Gone, record(5, 5), Found::Gone];
        assert_eq!(members.differing(&names, &found), ["b", "c", "d"]);
        assert_eq!(apply(&mut members, vec![("d", Found::Gone)]).0, [("/d/pay/d".to_owned(), 6, None)]);
        assert_eq!(apply(&mut members, vec![("d", Found::Gone)]).0, []);
        assert_eq!(apply(&mut members, vec![("b", Found::Gone)]).0, [("/d/pay/b".to_owned(), 5, None)]);
    }

    #[test]
    fn w08_a_removal_is_newer_than_the_write_that_only_reconciliation_saw() {
        let mut members = Members::new("/d/pay".to_owned(), 0);
        apply(&mut members, vec![("a", record(10, 10))]);
        assert_eq!(members.differing(&["a".to_owned()], &[record(20, 20)]), ["a"]);
        assert_eq!(apply(&mut members, vec![("a", Found::Gone)]).0, [("/d/pay/a".to_owned(), 21, None)]);
    }

    #[test]
    fn w08_pages_come_round_and_names_are_compared() {
        let mut members = Members::new("/d/pay".to_owned(), 0);
        apply(&mut members, vec![("a-0000000001", record(1, 1)), ("b", record(2, 2)), ("c", record(3, 3))]);
        apply(&mut members, vec![("a-0000000000", Found::Superseded(stat(0, 4)))]);
        let pages: Vec<_> = (0..4).map(|_| members.next_page(2).join(" ")).collect();
        assert_eq!(pages, ["a-0000000001 b", "c", "a-0000000001 b", "c"]);
        let names = ["c", "a-0000000001", "a-0000000000", "b"].map(str::to_owned);
        assert_eq!(members.compare(&names, 9), (3, vec![]));
        assert!(members.is_of(9));
        assert_eq!(members.compare(&names[..3], 10), (2, vec![]));
        assert_eq!(members.compare(&[&names[..], &["d".to_owned()]].concat(), 11), (4, vec!["d".to_owned()]));
        assert!(members.is_of(9));
    }
}
