//! Records, leases and the history of changes: what a store is, in its simplest form.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use super::Notification;
use crate::store::{RawChange, RawRecord};

/// Older notifications are compacted away, so that memory stays bounded.
const MAX_HISTORY: usize = 16_384;

#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) value: Vec<u8>,
    pub(super) lease: Option<u64>,
    pub(super) revision: u64,
}

#[derive(Debug)]
pub(super) struct State {
    revision: u64,
    next_lease: u64,
    records: BTreeMap<String, Stored>,
    leases: HashMap<u64, (Duration, Instant)>,
    /// Records that were taken over, with the lease that lost them; gone with that lease.
    superseded: HashSet<(String, u64)>,
    /// Numbered by arrival, which is also how followers count; holes are lost notifications.
    history: VecDeque<(u64, Notification)>,
    arrivals: u64,
    /// What arrived before this number is no longer in the history.
    compacted: u64,
    losing: usize,
    reads_denied: bool,
    /// Wakes followers; the value is the number of the last arrival.
    wake: watch::Sender<u64>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            revision: 0,
            next_lease: 1,
            records: BTreeMap::new(),
            leases: HashMap::new(),
            superseded: HashSet::new(),
            history: VecDeque::new(),
            arrivals: 0,
            compacted: 0,
            losing: 0,
            reads_denied: false,
            wake: watch::Sender::new(0),
        }
    }
}

impl State {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Stored> {
        self.records.get(key)
    }

    /// The records under a prefix; `None` while reading is denied.
    pub(super) fn range(&self, prefix: &str) -> Option<Vec<RawRecord>> {
        if self.reads_denied {
            return None;
        }
        let records = self.records.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let raw =
            |(key, r): (&String, &Stored)| RawRecord { key: key.clone(), revision: r.revision, value: r.value.clone() };
        Some(records.map(raw).collect())
    }

    pub(super) fn deny_reads(&mut self, denied: bool) {
        self.reads_denied = denied;
    }

    /// The keys that hang on a lease.
    pub(super) fn keys_of(&self, lease: u64) -> Vec<String> {
        self.records.iter().filter(|(_, r)| r.lease == Some(lease)).map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn put(&mut self, key: &str, value: &[u8], lease: Option<u64>) {
        self.revision += 1;
        let stored = Stored { value: value.to_vec(), lease, revision: self.revision };
        self.records.insert(key.to_owned(), stored);
        let record = RawRecord { key: key.to_owned(), revision: self.revision, value: value.to_vec() };
        self.notify((self.revision, RawChange::Put(record)));
    }

    pub(super) fn delete(&mut self, key: &str) {
        if self.records.remove(key).is_some() {
            self.revision += 1;
            self.notify((self.revision, RawChange::Delete(key.to_owned(), self.revision)));
        }
    }

    /// Remembers that a record was taken from a lease, for as long as that lease lives (R6).
    pub(super) fn supersede(&mut self, key: &str, lease: u64) {
        self.superseded.insert((key.to_owned(), lease));
    }

    /// Forgets that, because the lease has taken the record back by a registration of its own.
    pub(super) fn reclaim(&mut self, key: &str, lease: u64) {
        self.superseded.remove(&(key.to_owned(), lease));
    }

    pub(super) fn is_superseded(&self, key: &str, lease: u64) -> bool {
        self.superseded.contains(&(key.to_owned(), lease))
    }

    pub(super) fn grant(&mut self, ttl: Duration) -> u64 {
        let id = self.next_lease;
        self.next_lease += 1;
        self.leases.insert(id, (ttl, Instant::now() + ttl));
        id
    }

    /// Renews a lease that is still alive.
    pub(super) fn renew(&mut self, id: u64) -> Option<Duration> {
        let (ttl, expires) = self.leases.get_mut(&id)?;
        *expires = Instant::now() + *ttl;
        Some(*ttl)
    }

    pub(super) fn is_alive(&self, id: u64) -> bool {
        self.leases.contains_key(&id)
    }

    pub(super) fn lease_count(&self) -> usize {
        self.leases.len()
    }

    pub(super) fn revoke(&mut self, id: u64) {
        self.leases.remove(&id);
        self.superseded.retain(|(_, lease)| *lease != id);
        for key in self.keys_of(id) {
            self.delete(&key);
        }
    }

    /// Ends the leases whose time has passed.
    pub(super) fn sweep(&mut self) {
        let now = Instant::now();
        let ended: Vec<_> = self.leases.iter().filter(|(_, (_, at))| *at <= now).map(|(id, _)| *id).collect();
        for id in ended {
            self.revoke(id);
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.leases.values().map(|(_, at)| *at).min()
    }

    pub(super) fn expire_all(&mut self) {
        for id in self.leases.keys().copied().collect::<Vec<_>>() {
            self.revoke(id);
        }
    }

    pub(super) fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.arrivals;
    }

    pub(super) fn wipe(&mut self) {
        self.records.clear();
        self.leases.clear();
        self.superseded.clear();
        self.revision = 0;
        self.compact();
        // Followers have a gap now, and have to notice without another change.
        self.arrivals += 1;
        self.compacted = self.arrivals;
        self.wake.send_replace(self.arrivals);
    }

    pub(super) fn lose(&mut self, count: usize) {
        self.losing += count;
    }

    pub(super) fn replay(&mut self, count: usize) {
        let again: Vec<_> = self.history.iter().rev().take(count).map(|(_, n)| n.clone()).collect();
        for notification in again {
            self.notify(notification);
        }
    }

    /// The notifications after an arrival; `None` if some of them are compacted away.
    pub(super) fn since(&self, arrival: u64) -> Option<Vec<Notification>> {
        if arrival < self.compacted {
            return None;
        }
        Some(self.history.iter().filter(|(n, _)| *n > arrival).map(|(_, notification)| notification.clone()).collect())
    }

    fn notify(&mut self, notification: Notification) {
        self.arrivals += 1;
        if self.losing > 0 {
            self.losing -= 1;
        } else {
            self.history.push_back((self.arrivals, notification));
        }
        while self.history.len() > MAX_HISTORY {
            if let Some((number, _)) = self.history.pop_front() {
                self.compacted = number;
            }
        }
        self.wake.send_replace(self.arrivals);
    }
}
