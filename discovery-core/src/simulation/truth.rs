//! What the store really holds and held: records, leases, and every state since the beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::model::{Key, KeySpace, decode};
use crate::store::{Lease, Owner, RawChange, RawRecord, Written};

/// What stands under a key, as far as watchers can tell. The weight of a simulated instance is the number of the user's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Wish(u32),
    Junk,
}

#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) value: Arc<[u8]>,
    pub(super) said: Said,
    /// `None` for what an operator wrote by hand.
    pub(super) lease: Option<u64>,
    pub(super) revision: u64,
}

#[derive(Debug, Clone)]
struct LeaseState {
    ttl: Duration,
    expires: Duration,
    client: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) revision: u64,
    pub(super) records: BTreeMap<Arc<str>, Stored>,
    leases: BTreeMap<u64, LeaseState>,
    /// Records that were taken over, with the lease that lost them (R6).
    taken: BTreeSet<(Arc<str>, u64)>,
}

impl State {
    /// The records under a prefix.
    pub(super) fn range(&self, prefix: &str) -> Vec<RawRecord> {
        let under = self.records.iter().filter(|(key, _)| key.starts_with(prefix));
        under
            .map(|(key, r)| RawRecord { key: key.to_string(), revision: r.revision, value: r.value.to_vec() })
            .collect()
    }

    /// The keys that hang on a lease.
    /// The records on a lease, with their revisions.
    pub(super) fn held_by(&self, lease: u64) -> Vec<(Arc<str>, u64)> {
        let held = self.records.iter().filter(|(_, r)| r.lease == Some(lease));
        held.map(|(key, r)| (key.clone(), r.revision)).collect()
    }

    pub(super) fn keys_of(&self, lease: u64) -> Vec<Arc<str>> {
        self.records.iter().filter(|(_, r)| r.lease == Some(lease)).map(|(key, _)| key.clone()).collect()
    }
}

pub(super) struct Truth {
    space: KeySpace,
    pub(super) state: State,
    /// The state after each change, with its time; the number of a state is its place here.
    past: Vec<(Duration, State)>,
    /// The first state since the store was last restored or emptied: nobody serves anything older.
    era: usize,
    /// The changes that were told to subscribers, with the number of the state that each led to.
    pub(super) log: Vec<(usize, RawChange)>,
    /// What each key said, with the number of the first state where it did.
    pub(super) said: BTreeMap<Arc<str>, Vec<(usize, Said)>>,
    next_lease: u64,
    /// Whose each lease is or was.
    owners: BTreeMap<u64, usize>,
    /// Records that a restored backup or a late write brought back, and that were not written since: who wrote them cannot know that
    /// they are old.
    brought_back: BTreeSet<Arc<str>>,
    /// How much longer than its TTL a lease is kept.
    pub(super) lateness: Duration,
}

pub(super) fn key_of(change: &RawChange) -> &str {
    match change {
        RawChange::Put(record) => &record.key,
        RawChange::Delete(key, _) => key,
    }
}

/// Far above what a schedule adds, so that a restored backup cannot be overtaken before anybody looks.
const FIRST_REVISION: u64 = 1_000_000_000_000;
/// How many revisions an old backup lies behind.
const BACKUP_AGE: u64 = 10_000;

impl Truth {
    pub(super) fn new(space: KeySpace) -> Self {
        let state = State { revision: FIRST_REVISION, ..State::default() };
        let past = vec![(Duration::ZERO, state.clone())];
        let (log, said, owners) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            space,
            state,
            past,
            era: 0,
            log,
            said,
            next_lease: 1,
            owners,
            brought_back: BTreeSet::new(),
            lateness: Duration::ZERO,
        }
    }

    /// The number of the state now.
    pub(super) fn number(&self) -> usize {
        self.past.len() - 1
    }

    /// The state as it was at a time, unless the store was restored since, and its number.
    pub(super) fn at(&self, time: Duration) -> (usize, &State) {
        let number = self.past.partition_point(|(at, _)| *at <= time).saturating_sub(1).max(self.era);
        (number, &self.past[number].1)
    }

    /// The records under a prefix in a state, and its revision.
    pub(super) fn range(&self, number: usize, prefix: &str) -> (u64, Vec<RawRecord>) {
        self.past.get(number).map_or((0, Vec::new()), |(_, state)| (state.revision, state.range(prefix)))
    }

    /// What changed under a prefix after a state; `None` if the store was restored since.
    pub(super) fn changes_after(&self, number: usize, prefix: &str) -> Option<Vec<RawChange>> {
        let since = self.log.iter().filter(|(at, change)| *at > number && key_of(change).starts_with(prefix));
        (number >= self.era).then(|| since.map(|(_, change)| change.clone()).collect())
    }

    pub(super) fn client_of(&self, lease: u64) -> Option<usize> {
        self.owners.get(&lease).copied()
    }

    pub(super) fn bring_back(&mut self, path: &Arc<str>) {
        self.brought_back.insert(path.clone());
    }

    pub(super) fn is_brought_back(&self, path: &str) -> bool {
        self.brought_back.contains(path)
    }

    pub(super) fn leases_of(&self, client: usize) -> usize {
        self.state.leases.values().filter(|lease| lease.client == client).count()
    }

    pub(super) fn is_alive(&self, lease: u64) -> bool {
        self.state.leases.contains_key(&lease)
    }

    pub(super) fn put(&mut self, now: Duration, key: &Arc<str>, value: Arc<[u8]>, lease: Option<u64>) {
        let parsed = self.space.parse(key);
        let said = match parsed.and_then(|key: Key| decode(&key, &value).ok()) {
            Some(decoded) => Said::Wish(decoded.instance.weight()),
            None => Said::Junk,
        };
        self.brought_back.remove(key);
        self.state.revision += 1;
        let revision = self.state.revision;
        self.state.records.insert(key.clone(), Stored { value: value.clone(), said, lease, revision });
        let record = RawRecord { key: key.to_string(), revision, value: value.to_vec() };
        self.changed(now, Some(RawChange::Put(record)));
    }

    pub(super) fn delete(&mut self, now: Duration, key: &str) {
        self.delete_all(now, &[key.into()]);
    }

    /// Deletes keys at one revision, as the end of a lease does.
    fn delete_all(&mut self, now: Duration, keys: &[Arc<str>]) {
        let revision = self.state.revision + 1;
        for key in keys {
            if self.state.records.remove(key).is_some() {
                self.state.revision = revision;
                self.changed(now, Some(RawChange::Delete(key.to_string(), revision)));
            }
        }
    }

    /// Remembers the state, and what each key says in it.
    fn changed(&mut self, now: Duration, change: Option<RawChange>) {
        let number = self.past.len();
        self.past.push((now, self.state.clone()));
        let keys: BTreeSet<_> = self.said.keys().chain(self.state.records.keys()).cloned().collect();
        for key in keys {
            let said = self.state.records.get(&key).map_or(Said::Nothing, |stored| stored.said);
            let course = self.said.entry(key.clone()).or_insert_with(|| vec![(0, Said::Nothing)]);
            // A record that was written anew with the same words is a state of its own.
            let again = matches!(&change, Some(RawChange::Put(record)) if *record.key == *key);
            if course.last().is_none_or(|(_, last)| *last != said) || again {
                course.push((number, said));
            }
        }
        self.log.extend(change.map(|change| (number, change)));
    }

    pub(super) fn grant(&mut self, now: Duration, client: usize, ttl: Duration) -> Lease {
        let id = self.next_lease;
        self.next_lease += 1;
        self.owners.insert(id, client);
        self.state.leases.insert(id, LeaseState { ttl, expires: now + ttl + self.lateness, client });
        Lease { id, ttl }
    }

    pub(super) fn renew(&mut self, now: Duration, id: u64) -> Option<Duration> {
        let lease = self.state.leases.get_mut(&id)?;
        lease.expires = now + lease.ttl + self.lateness;
        Some(lease.ttl)
    }

    pub(super) fn write(
        &mut self,
        now: Duration,
        lease: &Lease,
        key: &Arc<str>,
        value: Arc<[u8]>,
        previous: Option<&Owner>,
    ) -> Written {
        if !self.is_alive(lease.id) {
            return Written::LeaseLost;
        }
        let holder = self.state.records.get(key).and_then(|record| record.lease);
        match previous {
            None => {
                if let Some(former) = holder.filter(|former| *former != lease.id) {
                    self.state.taken.insert((key.clone(), former));
                }
            }
            Some(owner) => {
                let ours = |id| id == lease.id || id == owner.lease.id;
                if holder.is_some_and(|id| !ours(id)) || self.state.taken.contains(&(key.clone(), owner.lease.id)) {
                    return Written::Superseded(holder);
                }
            }
        }
        self.state.taken.remove(&(key.clone(), lease.id));
        self.put(now, key, value, Some(lease.id));
        Written::Done(Owner { lease: lease.clone(), mark: "".into() })
    }

    pub(super) fn remove(&mut self, now: Duration, key: &str, owner: &Owner) {
        if self.state.records.get(key).is_some_and(|r| r.lease.is_none_or(|holder| holder == owner.lease.id)) {
            self.delete(now, key);
        }
    }

    pub(super) fn revoke(&mut self, now: Duration, id: u64) {
        self.state.leases.remove(&id);
        self.state.taken.retain(|(_, lease)| *lease != id);
        self.delete_all(now, &self.state.keys_of(id));
    }

    pub(super) fn next_expiry(&self) -> Option<Duration> {
        self.state.leases.values().map(|lease| lease.expires).min()
    }

    /// Ends the leases whose time has passed.
    pub(super) fn expire(&mut self, now: Duration) {
        self.revoke_all(now, |lease| lease.expires <= now);
    }

    /// Ends a client's leases before their time.
    pub(super) fn expire_of(&mut self, now: Duration, client: usize) {
        self.revoke_all(now, |lease| lease.client == client);
    }

    fn revoke_all(&mut self, now: Duration, which: impl Fn(&LeaseState) -> bool) {
        let ended: Vec<_> = self.state.leases.iter().filter(|(_, lease)| which(lease)).map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|id| self.revoke(now, id));
    }

    /// Leases are kept for at least another TTL by a server that starts anew.
    fn refresh(&mut self, now: Duration) {
        self.state.leases.values_mut().for_each(|lease| lease.expires = now + lease.ttl);
    }

    pub(super) fn restart(&mut self, now: Duration) {
        self.refresh(now);
    }

    /// Loses everything; revisions begin far below, or far ahead as where they come from a clock.
    pub(super) fn empty(&mut self, now: Duration, ahead: bool) {
        let revision = if ahead { self.state.revision + FIRST_REVISION } else { self.state.revision / 10 };
        self.state = State { revision, ..State::default() };
        self.turned(now);
    }

    /// Goes back to an earlier state, as when a backup is restored; with `old` as if it had been made long ago.
    pub(super) fn restore(&mut self, now: Duration, time: Duration, old: bool) {
        let mut state = self.at(time).1.clone();
        if old {
            let lowest = self.state.revision.saturating_sub(BACKUP_AGE);
            for (number, record) in state.records.values_mut().enumerate() {
                record.revision = lowest.saturating_sub(number as u64);
            }
            state.revision = lowest;
        }
        self.brought_back = state.records.keys().cloned().collect();
        self.state = state;
        self.refresh(now);
        self.turned(now);
    }

    fn turned(&mut self, now: Duration) {
        self.changed(now, None);
        self.era = self.number();
    }
}
