//! The model of one service: its instances, what cannot be read, and what the brake holds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::decoding::{decode_all, decode_one, hash};
use super::ledger::Ledger;
use super::link::Link;
use super::model::{Hold, Model};
use crate::set::InstanceSet;
use crate::snapshot::{Freshness, Since, Snapshot};
use crate::store::{RawChange, RawRecord};
use crate::{Error, ErrorKind};

/// More lines than this for one batch of unreadable records would drown the log; a summary follows instead.
const MAX_REPORTS: usize = 10;

/// Gaps in a row extend a hold to this many graces in all.
const MAX_GRACES: u32 = 3;

/// What is known of one key in the store.
#[derive(Debug, Clone)]
struct Entry {
    /// A hash of the value, so that reading it anew costs no decoding where nothing changed.
    hash: u64,
    /// The id under which the instance stands in the set; `None` if there never was a good value.
    id: Option<Arc<str>>,
    /// Whether the value that the store has now can be read.
    readable: bool,
}

pub(super) struct Instances {
    service: Arc<str>,
    link: Arc<Link>,
    hold: Option<Hold>,
    loaded: bool,
    revision: u64,
    ledger: Ledger<Entry>,
    /// What watchers see: the readable, the last good value of the unreadable, and the held.
    set: InstanceSet,
    unreadable: usize,
    held: HashSet<Arc<str>>,
    release: Option<(Instant, Since)>,
    /// Unreadable keys that were reported already (W6).
    reported: HashSet<String>,
    reports_left: usize,
}

impl Instances {
    pub(super) fn new(service: Arc<str>, link: Arc<Link>, hold: Option<Hold>) -> Self {
        Self {
            service,
            link,
            hold,
            loaded: false,
            revision: 0,
            ledger: Ledger::default(),
            set: InstanceSet::default(),
            unreadable: 0,
            held: HashSet::new(),
            release: None,
            reported: HashSet::new(),
            reports_left: MAX_REPORTS,
        }
    }

    /// Takes in one record; the instance goes into the set, and the entry says what the store has.
    fn read(&mut self, record: &RawRecord, hash: u64, before: Option<Arc<str>>) -> (Entry, bool) {
        match decode_one(&*self.link.store, &self.service, record) {
            Ok(decoded) => {
                self.report_repair(&record.key, decoded.repaired);
                let (instance, id) = (Arc::new(decoded.instance), decoded.id);
                let same = self.set.get(&id).is_some_and(|known| **known == *instance);
                let was_held = self.held.remove(&id);
                if !same {
                    self.set.insert(instance);
                }
                (Entry { hash, id: Some(id), readable: true }, !same || was_held)
            }
            Err(error) => {
                self.report(&record.key, &error.to_string());
                (Entry { hash, id: before, readable: false }, true)
            }
        }
    }

    /// Takes in the first set: there is nothing to compare it with, so it is put together at once.
    fn read_first(&mut self, records: Vec<RawRecord>) {
        let decoded = decode_all(&*self.link.store, &self.service, &records);
        let mut instances = Vec::with_capacity(records.len());
        for (record, (hash, decoded)) in records.into_iter().zip(decoded) {
            let id = match decoded {
                Ok(decoded) => {
                    self.report_repair(&record.key, decoded.repaired);
                    instances.push(Arc::new(decoded.instance));
                    Some(decoded.id)
                }
                Err(error) => {
                    self.report(&record.key, &error.to_string());
                    None
                }
            };
            let entry = Entry { hash, readable: id.is_some(), id };
            self.ledger.put(record.key, record.revision, entry);
        }
        self.set = instances.into_iter().collect();
    }

    fn report_repair(&mut self, key: &str, repaired: Option<String>) {
        match repaired {
            Some(repaired) => self.report(key, &format!("read with a default: {repaired}")),
            None => _ = self.reported.remove(key),
        }
    }

    fn report(&mut self, key: &str, why: &str) {
        if self.reported.insert(key.to_owned()) && self.reports_left > 0 {
            self.reports_left -= 1;
            tracing::warn!(service = %self.service, key, why, "a record of the registry cannot be used as it is");
            if self.reports_left == 0 {
                tracing::warn!(service = %self.service, "more such records are only counted");
            }
        }
    }

    /// Takes an instance that the store no longer has out of the set.
    fn drop_entry(&mut self, key: &str, entry: &Entry) -> bool {
        self.reported.remove(key);
        entry.id.as_ref().is_some_and(|id| self.set.remove(id).is_some()) || !entry.readable
    }

    fn extend_hold(&mut self, hold: Hold) {
        let since = self.release.map_or_else(Since::now, |(_, since)| since);
        // A subscription that breaks again and again must not hold the dead for ever.
        let left = (hold.grace * MAX_GRACES).saturating_sub(since.elapsed());
        self.release = Some((Instant::now() + hold.grace.min(left), since));
    }

    /// Decides what happens to the instances that are missing from a full set.
    fn part_with(&mut self, missing: HashMap<String, (u64, Entry)>, before: usize, gap: bool) -> bool {
        let gone: Vec<_> = missing.into_iter().map(|(key, (_, entry))| (key, entry)).collect();
        let vanished = gone.iter().filter(|(_, e)| e.id.is_some()).count() + self.held.len();
        match self.hold.filter(|hold| gap && hold.is_sharp(before, vanished)) {
            Some(hold) if !gone.is_empty() => {
                if self.link.brake_log.permits() {
                    tracing::warn!(
                        service = %self.service, before, vanished, grace = ?hold.grace,
                        "a set shrank sharply across a gap, and maybe others; it is held so that the living can come back"
                    );
                }
                for (key, entry) in gone {
                    self.reported.remove(&key);
                    self.held.extend(entry.id);
                }
                self.extend_hold(hold);
                true
            }
            _ => {
                // Whoever could not come back during this gap either gets another grace.
                if let Some(hold) = self.hold.filter(|_| gap && !self.held.is_empty()) {
                    self.extend_hold(hold);
                }
                let mut effect = false;
                for (key, entry) in &gone {
                    effect |= self.drop_entry(key, entry);
                }
                effect
            }
        }
    }
}

impl Model for Instances {
    type View = Snapshot;

    fn full(&mut self, revision: u64, records: Vec<RawRecord>, gap: bool) -> bool {
        self.reports_left = MAX_REPORTS;
        let before = self.set.len();
        let mut old = self.ledger.replace(revision, HashMap::with_capacity(records.len()));
        let mut effect = !self.loaded;
        if !self.loaded {
            self.read_first(records);
        } else {
            for record in records {
                let hash = hash(&record.value);
                let known = old.remove(&record.key).map(|(_, entry)| entry);
                let entry = match known {
                    Some(entry) if entry.hash == hash => entry,
                    known => {
                        let (entry, changed) = self.read(&record, hash, known.and_then(|entry| entry.id));
                        effect |= changed;
                        entry
                    }
                };
                self.ledger.put(record.key, record.revision, entry);
            }
            effect |= self.part_with(old, before, gap);
        }
        if self.held.is_empty() {
            self.release = None;
        }
        let unreadable = self.ledger.entries().values().filter(|(_, entry)| !entry.readable).count();
        effect |= std::mem::replace(&mut self.unreadable, unreadable) != unreadable;
        self.revision = revision;
        self.loaded = true;
        effect
    }

    fn changes(&mut self, revision: u64, changes: Vec<RawChange>) -> bool {
        self.reports_left = MAX_REPORTS;
        let mut effect = false;
        for change in changes {
            match change {
                RawChange::Put(record) => {
                    if !self.ledger.admits(&record.key, record.revision) {
                        continue;
                    }
                    let before = self.ledger.get(&record.key).cloned();
                    let was_readable = before.as_ref().is_none_or(|entry| entry.readable);
                    let (entry, changed) = self.read(&record, hash(&record.value), before.and_then(|entry| entry.id));
                    match (was_readable, entry.readable) {
                        (true, false) => self.unreadable += 1,
                        (false, true) => self.unreadable -= 1,
                        _ => {}
                    }
                    effect |= changed || was_readable != entry.readable;
                    self.ledger.put(record.key, record.revision, entry);
                }
                RawChange::Delete(key, at) => {
                    if let Some(entry) = self.ledger.delete(&key, at) {
                        self.unreadable -= usize::from(!entry.readable);
                        effect |= self.drop_entry(&key, &entry);
                    }
                }
            }
        }
        if self.held.is_empty() {
            self.release = None;
        }
        self.revision = self.revision.max(revision);
        effect
    }

    fn release_at(&self) -> Option<Instant> {
        self.release.map(|(at, _)| at)
    }

    fn release(&mut self) {
        self.release = None;
        tracing::debug!(service = %self.service, released = self.held.len(), "the grace has passed; the store is believed");
        for id in std::mem::take(&mut self.held) {
            self.set.remove(&id);
        }
    }

    fn count(&self) -> usize {
        self.ledger.count()
    }

    fn lacks(&self, changed: &[(String, u64)]) -> bool {
        self.ledger.lacks(changed)
    }

    fn view(&self, freshness: &Freshness) -> Arc<Snapshot> {
        let freshness = match (freshness, self.release) {
            (Freshness::Live, Some((_, since))) => Freshness::Stale(
                since,
                Error::new(
                    ErrorKind::Gap,
                    "follow",
                    &*self.service,
                    format!(
                        "after a gap the store lacks {} of {} instances; they are held for a grace so that they can come back",
                        self.held.len(),
                        self.set.len()
                    ),
                ),
            ),
            (freshness, _) => freshness.clone(),
        };
        Arc::new(Snapshot {
            service: self.service.clone(),
            revision: self.revision,
            freshness,
            instances: self.set.clone(),
            unreadable: self.unreadable,
            held: self.held.len(),
        })
    }
}
