//! The keys of a scope and the revision of each: decides which notification is news.

use std::collections::HashMap;

/// Above this many removals the oldest knowledge is folded into one floor, so that memory stays bounded.
const MAX_TOMBS: usize = 1024;

/// What is known of each key, so that a late, doubled or reordered notification never turns the set back (W10).
#[derive(Debug)]
pub(super) struct Ledger<T> {
    entries: HashMap<String, (u64, T)>,
    /// Removed keys and the revision of their removal.
    tombs: HashMap<String, u64>,
    /// What is not in `entries` was not there at this revision, so an older write of it is no news.
    floor: u64,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), tombs: HashMap::new(), floor: 0 }
    }
}

impl<T> Ledger<T> {
    /// Whether a write of `key` at `revision` is newer than what is known.
    pub(super) fn admits(&self, key: &str, revision: u64) -> bool {
        match self.entries.get(key) {
            Some((known, _)) => revision > *known,
            None => revision > self.floor.max(self.tombs.get(key).copied().unwrap_or(0)),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.entries.get(key).map(|(_, entry)| entry)
    }

    pub(super) fn put(&mut self, key: String, revision: u64, entry: T) {
        self.tombs.remove(&key);
        self.entries.insert(key, (revision, entry));
    }

    /// Takes a key out, unless it was written again after `revision`.
    pub(super) fn delete(&mut self, key: &str, revision: u64) -> Option<T> {
        if self.entries.get(key).is_some_and(|(known, _)| *known > revision) {
            return None;
        }
        let removed = self.entries.remove(key).map(|(_, entry)| entry);
        if self.tombs.len() >= MAX_TOMBS {
            // Every removal so far becomes a floor for all absent keys. A write older than that which is still to come
            // would be missed here and found by reconciliation.
            self.floor = self.floor.max(self.tombs.drain().map(|(_, at)| at).max().unwrap_or(0));
        }
        let tomb = self.tombs.entry(key.to_owned()).or_insert(revision);
        *tomb = (*tomb).max(revision);
        removed
    }

    /// Replaces everything by a full set at one revision, and returns what was known before.
    pub(super) fn replace(&mut self, revision: u64, entries: HashMap<String, (u64, T)>) -> HashMap<String, (u64, T)> {
        self.tombs.clear();
        self.floor = revision;
        std::mem::replace(&mut self.entries, entries)
    }

    pub(super) fn entries(&self) -> &HashMap<String, (u64, T)> {
        &self.entries
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether a change that the store has is not known here, neither itself nor a later one of the same key.
    pub(super) fn lacks(&self, changed: &[(String, u64)]) -> bool {
        changed.iter().any(|(key, revision)| self.admits(key, *revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w10_nothing_old_comes_back() {
        let mut ledger = Ledger::default();
        assert!(ledger.admits("a", 5));
        ledger.put("a".into(), 5, ());
        assert!(!ledger.admits("a", 5) && !ledger.admits("a", 4) && ledger.admits("a", 6));
        assert_eq!(ledger.delete("a", 4), None, "a late removal of an older record");
        assert_eq!(ledger.delete("a", 7), Some(()));
        assert!(!ledger.admits("a", 6), "a late write of a removed record");
        assert!(ledger.admits("a", 8) && ledger.admits("b", 6));
    }

    #[test]
    fn memory_is_bounded_and_the_floor_still_holds() {
        let mut ledger: Ledger<()> = Ledger::default();
        for n in 0..5_000u64 {
            ledger.delete(&format!("k{n}"), n + 1);
        }
        assert!(ledger.tombs.len() <= MAX_TOMBS);
        assert!(!ledger.admits("k0", 1) && !ledger.admits("k4999", 5_000) && ledger.admits("k0", 6_000));
    }

    #[test]
    fn a_full_set_is_the_floor_for_what_it_lacks() {
        let mut ledger = Ledger::default();
        ledger.put("a".into(), 9, ());
        let before = ledger.replace(20, HashMap::from([("b".to_owned(), (15, ()))]));
        assert!(before.contains_key("a"));
        assert!(!ledger.admits("a", 20) && ledger.admits("a", 21) && ledger.admits("b", 16));
        assert_eq!(ledger.count(), 1);
        assert!(!ledger.lacks(&[("b".into(), 15), ("a".into(), 9)]), "known, and removed later");
        assert!(ledger.lacks(&[("b".into(), 21)]) && ledger.lacks(&[("c".into(), 21)]));
    }
}
