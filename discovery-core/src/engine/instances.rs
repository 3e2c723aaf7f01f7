//! The model of one service: its instances, what cannot be read, and what the brake holds.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::decoding::{Fresh, Known, Share, decode_all, decode_one, hash};
use super::ledger::Ledger;
use super::link::Link;
use super::model::Model;
use super::parts::Parts;
use super::policy::Hold;
use crate::set::InstanceSet;
use crate::snapshot::{Freshness, Since, Snapshot};
use crate::store::{RawChange, RawRecord};
use crate::{Error, ErrorKind, Instance, Result};

/// More lines than this for one batch of unreadable records would drown the log; a summary follows instead.
const MAX_REPORTS: usize = 10;

/// Bytes of what a stranger wrote that stand in a line of the log: a key and a value may be as long as the store lets them be.
const MAX_QUOTE: usize = 300;

/// Gaps in a row extend a hold to this many graces in all.
const MAX_GRACES: u32 = 3;

/// What is known of one key in the store.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// A hash of the value, so that reading it anew costs no decoding where nothing changed.
    pub(super) hash: u64,
    /// The id under which the instance stands in the set; `None` if there never was a good value.
    pub(super) id: Option<Arc<str>>,
    /// Whether the value that the store has now can be read.
    pub(super) readable: bool,
}

pub(super) struct Instances {
    service: Arc<str>,
    link: Arc<Link>,
    hold: Option<Hold>,
    loaded: bool,
    /// What the disk remembers, until the first full set was compared with it.
    remembered: Option<InstanceSet>,
    /// Whether watchers see what the disk remembers.
    from_disk: bool,
    revision: u64,
    ledger: Ledger<Entry>,
    parts: Parts,
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
            remembered: None,
            from_disk: false,
            revision: 0,
            ledger: Ledger::default(),
            parts: Parts::default(),
            set: InstanceSet::default(),
            unreadable: 0,
            held: HashSet::new(),
            release: None,
            reported: HashSet::new(),
            reports_left: MAX_REPORTS,
        }
    }

    /// Takes in what a record says, which replaces what `before` said; an instance that is not as it was is new.
    fn hear(
        &mut self,
        key: &str,
        hash: u64,
        said: Result<Known>,
        before: Option<Arc<str>>,
    ) -> (Entry, Option<Arc<Instance>>) {
        match said {
            Ok(known) => {
                self.report_repair(key, known.repaired);
                (Entry { hash, id: Some(known.id), readable: true }, Some(known.instance))
            }
            Err(error) => {
                self.report(key, &error.to_string());
                (Entry { hash, id: before, readable: false }, None)
            }
        }
    }

    /// Takes in some records of the next full set.
    fn take(&mut self, share: Share) {
        for (Fresh { record: RawRecord { key, revision, .. }, hash, .. }, said) in share.finish() {
            self.take_one(key, revision, hash, said);
        }
    }

    /// Takes in a record of the next full set, and what it says; `None` for what is known already.
    fn take_one(&mut self, key: String, revision: u64, hash: u64, said: Option<Result<Known>>) {
        let known = self.ledger.get(&key);
        let (entry, instance) = match (said, known) {
            (None, Some(known)) => (known.clone(), None),
            // Nothing is known without an entry.
            (None, None) => return,
            (Some(said), known) => {
                let before = known.and_then(|known| known.id.clone()).or_else(|| self.remembered_id(&key));
                let (entry, instance) = self.hear(&key, hash, said, before);
                if instance.is_none() {
                    self.parts.miss();
                }
                (entry, instance)
            }
        };
        self.parts.put(key, revision, entry, instance);
    }

    /// Applies what changed while the parts were read.
    fn apply_to_parts(&mut self, since: Vec<RawChange>) {
        for change in since {
            match change {
                RawChange::Put(RawRecord { ref key, revision, .. }) | RawChange::Delete(ref key, revision)
                    if self.parts.revision(key) >= Some(revision) => {}
                RawChange::Put(record) => {
                    let hash = hash(&record.value);
                    let same = self.ledger.get(&record.key).is_some_and(|known| known.hash == hash);
                    let said = (!same).then(|| decode_one(&*self.link.store, &self.service, &record));
                    self.take_one(record.key, record.revision, hash, said);
                }
                RawChange::Delete(key, _) => self.parts.remove(&key),
            }
        }
    }

    /// Puts an instance into the set, and answers whether that changes what watchers see.
    fn show(&mut self, instance: Arc<Instance>) -> bool {
        let was_held = self.held.remove(instance.id());
        if self.set.get(instance.id()).is_some_and(|known| *known == instance) {
            return was_held;
        }
        self.set.insert(instance);
        true
    }

    fn report_repair(&mut self, key: &str, repaired: Option<String>) {
        match repaired {
            Some(repaired) => self.report(key, &format!("read with a default: {repaired}")),
            None if self.reported.is_empty() => {}
            None => _ = self.reported.remove(key),
        }
    }

    fn report(&mut self, key: &str, why: &str) {
        if self.reported.insert(key.to_owned()) && self.reports_left > 0 {
            self.reports_left -= 1;
            let (key, why) = (brief(key), brief(why));
            tracing::warn!(service = %self.service, key = &*key, why = &*why, "a record of the registry cannot be used as it is");
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

    /// The id that a key stands for, if the disk remembers an instance of it: its last good value, should the record be unreadable (W6).
    fn remembered_id(&self, key: &str) -> Option<Arc<str>> {
        let remembered = self.remembered.as_ref()?;
        let (_, id) = self.link.store.parse_key(key)?;
        remembered.get(&id).map(|_| id.into())
    }

    /// Compares the first full set with what the disk remembers, as across any gap (W9).
    fn join_remembered(&mut self) {
        let Some(remembered) = self.remembered.take() else { return };
        for id in self.ledger.entries().values().filter(|(_, entry)| !entry.readable).filter_map(|(_, e)| e.id.as_ref())
        {
            if let (None, Some(last_good)) = (self.set.get(id), remembered.get(id)) {
                self.set.insert(last_good.clone());
            }
        }
        let gone: Vec<_> = remembered.iter().filter(|instance| self.set.get(instance.id()).is_none()).collect();
        let (before, vanished) = (remembered.len(), gone.len());
        // Since then others may have taken their place, in a deployment say; a store that lost its data has fewer.
        let shrunk = before.saturating_sub(self.set.len());
        if let Some(hold) = self.hold.filter(|hold| hold.is_sharp(before, shrunk)) {
            self.report_hold(before, vanished, hold);
            for instance in gone {
                self.held.insert(instance.id().into());
                self.set.insert(instance.clone());
            }
            self.extend_hold(hold);
        }
    }

    fn report_hold(&self, before: usize, vanished: usize, hold: Hold) {
        if self.link.brake_log.permits() {
            tracing::warn!(
                service = %self.service, before, vanished, grace = ?hold.grace,
                "a set shrank sharply across a gap, and maybe others; it is held so that the living can come back"
            );
        }
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
                self.report_hold(before, vanished, hold);
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

    fn remember(&mut self, remembered: Snapshot) {
        self.remembered = Some(remembered.instances);
    }

    fn show_remembered(&mut self) {
        if let Some(remembered) = self.remembered.as_ref().filter(|_| !self.loaded) {
            self.set = remembered.clone();
            self.from_disk = true;
        }
    }

    fn part(&mut self, records: Vec<RawRecord>) {
        let fresh = records.into_iter().map(|record| {
            let hash = hash(&record.value);
            let same = self.ledger.get(&record.key).is_some_and(|known| known.hash == hash);
            Fresh { record, hash, same }
        });
        let beside = !self.parts.is_settled();
        self.parts.add(decode_all(&self.link.store, &self.service, fresh.collect(), beside));
        while let Some(share) = self.parts.next_done() {
            self.take(share);
        }
    }

    fn forget_parts(&mut self) {
        self.parts = Parts::default();
        self.reports_left = MAX_REPORTS;
    }

    fn full(&mut self, revision: u64, since: Vec<RawChange>, gap: bool) -> bool {
        self.reports_left = MAX_REPORTS;
        let before = self.set.len();
        while let Some(share) = self.parts.next() {
            self.take(share);
        }
        self.apply_to_parts(since);
        let whole = self.parts.finish();
        let mut missing = self.ledger.replace(revision, whole.entries);
        let mut effect = !self.loaded || whole.unread;
        if self.loaded {
            for instance in whole.instances {
                effect |= self.show(instance);
            }
            missing.retain(|key, _| self.ledger.get(key).is_none());
            effect |= self.part_with(missing, before, gap);
        } else {
            // There is nothing in the store's own terms to compare it with, so it is put together at once.
            self.set = whole.instances.into_iter().collect();
            self.from_disk = false;
            self.join_remembered();
        }
        // Those of a set that was never whole.
        self.reported.retain(|key| self.ledger.get(key).is_some());
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
                    let said = decode_one(&*self.link.store, &self.service, &record);
                    let before = before.and_then(|entry| entry.id);
                    let (entry, instance) = self.hear(&record.key, hash(&record.value), said, before);
                    match (was_readable, entry.readable) {
                        (true, false) => self.unreadable += 1,
                        (false, true) => self.unreadable -= 1,
                        _ => {}
                    }
                    effect |= was_readable != entry.readable;
                    effect |= instance.is_none_or(|instance| self.show(instance));
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
        if self.link.brake_log.permits() {
            tracing::info!(
                service = %self.service, released = self.held.len(),
                "the grace has passed, and maybe for others; the store is believed"
            );
        }
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
            from_disk: self.from_disk,
        })
    }
}

/// The beginning of a text that may be of any length.
fn brief(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_QUOTE {
        return Cow::Borrowed(text);
    }
    let end = (0..=MAX_QUOTE).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    Cow::Owned(format!("{}… ({} bytes)", &text[..end], text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w06_a_line_quotes_no_more_than_the_beginning() {
        assert_eq!(brief("short"), "short");
        for text in ["x".repeat(1_000_000), "ä".repeat(500_000), format!("x{}", "🐂".repeat(250_000))] {
            let quoted = brief(&text);
            assert!(quoted.len() < MAX_QUOTE + 30 && quoted.ends_with(" bytes)"), "{quoted}");
        }
    }
}
