//! The model of the list of services: how many keys each name has.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use super::ledger::Ledger;
use super::model::Model;
use crate::snapshot::{Freshness, ServiceNames};
use crate::store::{RawChange, RawRecord, Store};

/// Counts keys by service. A list of names sends no traffic anywhere, so no brake holds it.
pub(super) struct Names {
    store: Arc<dyn Store>,
    loaded: bool,
    /// The service of each key; `None` for a key of another layout.
    ledger: Ledger<Option<Arc<str>>>,
    /// The parts of the next full set.
    parts: Vec<RawRecord>,
    counts: HashMap<Arc<str>, usize>,
    names: Arc<BTreeSet<Arc<str>>>,
    /// What the disk remembers, until it is shown or the first full set came.
    remembered: Option<ServiceNames>,
}

impl Names {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let (ledger, parts, counts) = (Ledger::default(), Vec::new(), HashMap::new());
        Self { store, loaded: false, ledger, parts, counts, names: Arc::default(), remembered: None }
    }

    fn add(&mut self, record: RawRecord) -> bool {
        let service = self.store.parse_key(&record.key).map(|(service, _)| service.into());
        let known = self.ledger.get(&record.key).is_some();
        self.ledger.put(record.key, record.revision, service.clone());
        let Some(service) = service.filter(|_| !known) else {
            return false;
        };
        let count = self.counts.entry(service.clone()).or_insert(0);
        *count += 1;
        *count == 1 && Arc::make_mut(&mut self.names).insert(service)
    }

    fn take(&mut self, service: Option<Arc<str>>) -> bool {
        let Some(service) = service else { return false };
        let Some(count) = self.counts.get_mut(&service) else {
            return false;
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.counts.remove(&service);
        Arc::make_mut(&mut self.names).remove(&service)
    }
}

impl Model for Names {
    type View = ServiceNames;

    fn remember(&mut self, remembered: ServiceNames) {
        self.remembered = Some(remembered);
    }

    fn show_remembered(&mut self) {
        if let Some(remembered) = self.remembered.take() {
            self.names = remembered.names;
        }
    }

    fn part(&mut self, records: Vec<RawRecord>) {
        self.parts.extend(records);
    }

    fn forget_parts(&mut self) {
        self.parts.clear();
    }

    fn full(&mut self, revision: u64, since: Vec<RawChange>, _gap: bool) -> bool {
        let before = self.names.clone();
        self.ledger.replace(revision, HashMap::new());
        self.counts.clear();
        self.names = Arc::default();
        for record in std::mem::take(&mut self.parts) {
            self.add(record);
        }
        for change in since {
            match change {
                RawChange::Put(record) => _ = self.add(record),
                RawChange::Delete(key, at) => {
                    let service = self.ledger.delete(&key, at).flatten();
                    self.take(service);
                }
            }
        }
        let first = !std::mem::replace(&mut self.loaded, true);
        first || before != self.names
    }

    fn changes(&mut self, _revision: u64, changes: Vec<RawChange>) -> bool {
        let mut effect = false;
        for change in changes {
            effect |= match change {
                RawChange::Put(record) if self.ledger.admits(&record.key, record.revision) => self.add(record),
                RawChange::Put(_) => false,
                RawChange::Delete(key, at) => {
                    let service = self.ledger.delete(&key, at).flatten();
                    self.take(service)
                }
            };
        }
        effect
    }

    fn release_at(&self) -> Option<Instant> {
        None
    }

    fn release(&mut self) {}

    fn count(&self) -> usize {
        self.ledger.count()
    }

    fn lacks(&self, changed: &[(String, u64)]) -> bool {
        self.ledger.lacks(changed)
    }

    fn view(&self, freshness: &Freshness) -> Arc<ServiceNames> {
        Arc::new(ServiceNames { freshness: freshness.clone(), names: self.names.clone() })
    }
}
