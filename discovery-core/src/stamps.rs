//! What stands in the store because this process wrote it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::Key;

/// The revisions that the writes of a handle were given, for stores whose records tell theirs.
///
/// A store that was restored knows leases again that are still renewed, with the records that hung on them then. So a record that hangs on
/// its lease may all the same not be what was written last (R7); an audit sees that by its revision.
#[derive(Debug, Default)]
pub struct Stamps(Mutex<HashMap<Key, u64>>);

impl Stamps {
    /// Notes that a record is about to be written or removed: until it is known how that ended, nothing can be said of it.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Notes at which revision it was written.
    pub fn wrote(&self, key: &Key, revision: u64) {
        self.lock().insert(key.clone(), revision);
    }

    /// The highest revision that a write was given.
    pub fn newest(&self) -> u64 {
        self.lock().values().copied().max().unwrap_or(0)
    }

    /// What is known before the store is asked.
    pub fn before(&self, keys: &[Key]) -> HashMap<Key, u64> {
        let stamps = self.lock();
        keys.iter().filter_map(|key| Some((key.clone(), *stamps.get(key)?))).collect()
    }

    /// Whether a record that was found at a revision is another one than was written last. One that was written while the store was asked
    /// is not judged.
    pub fn is_other(&self, before: &HashMap<Key, u64>, key: &Key, found: u64) -> bool {
        let now = self.lock().get(key).copied();
        now.is_some_and(|now| before.get(key) == Some(&now) && now != found)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stood_still_is_judged() {
        let (stamps, key) = (Stamps::default(), Key { service: "pay".into(), id: "a".into() });
        let keys = [key.clone()];
        assert!(!stamps.is_other(&stamps.before(&keys), &key, 3), "it was never written");
        stamps.wrote(&key, 7);
        let before = stamps.before(&keys);
        assert!(!stamps.is_other(&before, &key, 7));
        assert!(stamps.is_other(&before, &key, 3));
        stamps.forget(&key);
        assert!(!stamps.is_other(&before, &key, 3), "it is being written");
        stamps.wrote(&key, 8);
        assert!(!stamps.is_other(&before, &key, 7), "it was written meanwhile");
        assert_eq!(stamps.newest(), 8);
    }
}
