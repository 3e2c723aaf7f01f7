//! What a subscription knows of the records of one service.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use discovery_core::store::{RawChange, RawRecord};

use crate::load::Found;
use crate::tree::id_of;

/// The nodes of a service, and for each id the node that counts: the newest.
#[derive(Debug)]
pub(crate) struct Members {
    /// The path of the service's node.
    base: String,
    ids: BTreeMap<String, Identity>,
    /// The names of nodes that are no records.
    others: HashSet<String>,
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
    /// Nearly always one.
    nodes: Vec<(Arc<str>, Stamp)>,
    /// The node that was shown last, and the transaction that wrote it.
    shown: Option<(Arc<str>, i64)>,
    revision: u64,
}

impl Identity {
    fn stamp(&self, name: &str) -> Option<Stamp> {
        self.nodes.iter().find(|(known, _)| **known == *name).map(|(_, stamp)| *stamp)
    }

    fn put(&mut self, name: &Arc<str>, stamp: Stamp) {
        match self.nodes.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = stamp,
            None => self.nodes.push((name.clone(), stamp)),
        }
    }
}

/// The values that were read, by the names of their nodes.
type Values = HashMap<Arc<str>, Vec<u8>>;

impl Members {
    pub(crate) fn new(base: String, changed: i64) -> Self {
        let (ids, others, suspects) = (BTreeMap::new(), HashSet::new(), HashMap::new());
        Self { base, ids, others, changed, compared: String::new(), suspects }
    }

    /// What a node is known to be: a record, or `Some(None)` for something else.
    fn known(&self, name: &str) -> Option<Option<Stamp>> {
        match self.ids.get(id_of(name)).and_then(|identity| identity.stamp(name)) {
            Some(stamp) => Some(Some(stamp)),
            None => self.others.contains(name).then_some(None),
        }
    }

    /// Takes in what was read, and answers what changed by it, and which nodes have to be read besides: those that count again because a
    /// newer one is gone.
    pub(crate) fn apply(&mut self, read: Vec<(String, Found)>) -> (Vec<RawChange>, Vec<String>) {
        let mut values = Values::with_capacity(read.len());
        let (mut touched, mut changes) = (Vec::with_capacity(read.len()), Vec::new());
        for (name, found) in read {
            let name: Arc<str> = name.into();
            if let (Some(written), Found::Gone) = (self.suspects.remove(&*name), &found) {
                match self.ids.get_mut(id_of(&name)) {
                    Some(identity) => identity.revision = identity.revision.max(written),
                    // It came and went without being told of. Reconciliation has seen it, and would miss it for ever.
                    None => changes.push(RawChange::Delete(format!("{}/{}", self.base, id_of(&name)), written + 1)),
                }
            }
            self.note(&name, found, &mut values);
            touched.push(name);
        }
        touched.sort_by(|a, b| id_of(a).cmp(id_of(b)));
        touched.dedup_by(|a, b| id_of(a) == id_of(b));
        let mut missing = Vec::new();
        for name in touched {
            match self.show(id_of(&name), &mut values) {
                Shown::Changed(change) => changes.push(change),
                Shown::Unread(name) => missing.push(name),
                Shown::Same => {}
            }
        }
        (changes, missing)
    }

    /// Remembers what a node is.
    fn note(&mut self, name: &Arc<str>, found: Found, values: &mut Values) {
        let id = id_of(name);
        let stamp = match found {
            Found::Record(value, stat) => {
                values.insert(name.clone(), value);
                Stamp { created: stat.czxid, written: stat.mzxid }
            }
            // What it was before stays; if nothing is known of it, it counts as unreadable.
            Found::Denied => {
                values.entry(name.clone()).or_default();
                self.ids.get(id).and_then(|identity| identity.stamp(name)).unwrap_or_default()
            }
            Found::Gone | Found::Parent | Found::Superseded(_) => {
                if let Some(identity) = self.ids.get_mut(id) {
                    identity.nodes.retain(|(known, _)| known != name);
                }
                if matches!(found, Found::Gone) {
                    self.others.remove(&**name);
                } else {
                    self.others.insert((**name).to_owned());
                }
                return;
            }
        };
        if !self.others.is_empty() {
            self.others.remove(&**name);
        }
        match self.ids.get_mut(id) {
            Some(identity) => identity.put(name, stamp),
            None => {
                let identity = Identity { nodes: vec![(name.clone(), stamp)], ..Identity::default() };
                self.ids.insert(id.to_owned(), identity);
            }
        }
    }

    /// Decides which node of an id counts.
    fn show(&mut self, id: &str, values: &mut Values) -> Shown {
        let Some(identity) = self.ids.get_mut(id) else { return Shown::Same };
        let key = || format!("{}/{id}", self.base);
        // Of several that were created in one transaction the last name counts.
        let newest = identity.nodes.iter().max_by_key(|(name, stamp)| (stamp.created, name));
        let Some((newest, stamp)) = newest else {
            let gone = self.ids.remove(id).filter(|identity| identity.shown.is_some());
            return gone.map_or(Shown::Same, |gone| Shown::Changed(RawChange::Delete(key(), gone.revision + 1)));
        };
        let next = (newest.clone(), stamp.written);
        if identity.shown.as_ref() == Some(&next) {
            return Shown::Same;
        }
        let Some(value) = values.remove(newest) else { return Shown::Unread(newest.to_string()) };
        // An older node that counts again was written before the one that is gone. Its return is newer, and so is its revision: the
        // removal was a transaction of its own, so the next number is still below whatever is written later.
        identity.revision = next.1.unsigned_abs().max(identity.revision + 1);
        identity.shown = Some(next);
        Shown::Changed(RawChange::Put(RawRecord { key: key(), revision: identity.revision, value }))
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
        let records = names.iter().filter(|name| !matches!(self.known(name), Some(None)));
        let count = records.map(|name| id_of(name)).collect::<HashSet<_>>().len();
        let unknown: Vec<_> = names.iter().filter(|name| self.known(name).is_none()).cloned().collect();
        let nodes = self.others.len() + self.ids.values().map(|identity| identity.nodes.len()).sum::<usize>();
        if unknown.is_empty() && names.len() == nodes {
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
        let shown = page.into_iter().filter_map(|(_, identity)| identity.shown.as_ref());
        let names = shown.map(|(name, _)| name.to_string()).collect();
        self.compared = last;
        names
    }

    /// Which nodes a reconciliation found otherwise than known. Each is to be looked at again, as a watch may have been lost.
    pub(crate) fn differing(&mut self, names: &[String], found: &[Found]) -> Vec<String> {
        self.suspects.clear();
        let mut differing = Vec::new();
        for (name, found) in names.iter().zip(found) {
            let known = self.known(name);
            let differs = match found {
                Found::Record(_, stat) => known.flatten().is_none_or(|known| known.written != stat.mzxid),
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
