//! From what a store holds to instances, beside the reading of it where there is much.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use xxhash_rust::xxh3::xxh3_64;

use crate::model::{Key, decode};
use crate::store::{RawRecord, Store};
use crate::{Error, ErrorKind, Instance, Result};

/// Records that are decoded in one go, in half a millisecond.
const MANY: usize = 400;

/// A record that was believed.
pub(super) struct Known {
    pub(super) id: Arc<str>,
    pub(super) instance: Arc<Instance>,
    /// What had to be replaced by a default.
    pub(super) repaired: Option<String>,
}

/// A record that was read, and what is known of it.
pub(super) struct Fresh {
    pub(super) record: RawRecord,
    pub(super) hash: u64,
    /// Whether its value is the one that is known.
    pub(super) same: bool,
}

/// What a record says; `None` for what is known already.
type Said = Option<Result<Known>>;

/// Decodes one record of a service.
///
/// # Errors
/// `Corrupt`, saying what is wrong with it.
pub(super) fn decode_one(store: &dyn Store, service: &Arc<str>, record: &RawRecord) -> Result<Known> {
    let Some((_, id)) = store.parse_key(&record.key).filter(|(of, _)| **of == **service) else {
        return Err(corrupt(&record.key, "the key is not one of this layout"));
    };
    let limit = store.capabilities().max_record;
    if record.value.len() > limit {
        return Err(corrupt(&record.key, &format!("{} bytes are above the limit of {limit}", record.value.len())));
    }
    // All instances share one name of their service.
    let key = Key { service: service.clone(), id: id.into() };
    let decoded = decode(&key, &record.value)?;
    Ok(Known { id: key.id, instance: Arc::new(decoded.instance), repaired: decoded.repaired })
}

/// Some records that are being decoded.
pub(super) struct Share {
    work: Arc<Work>,
    given: bool,
}

struct Work {
    store: Arc<dyn Store>,
    service: Arc<str>,
    count: usize,
    /// Held by whoever decodes.
    stage: Mutex<Stage>,
}

enum Stage {
    Waiting(Vec<Fresh>),
    /// The values are dropped by whoever takes them: dropping here what another thread allocates would make both wait for each other.
    Done(Vec<Fresh>, Vec<Said>),
}

/// Begins to decode records: many of them, and those `beside` others, by the other threads of the runtime, as far as these have nothing else
/// to do. What reads the store is polled by the thread that was woken by the answer, so it would stand still meanwhile.
pub(super) fn decode_all(store: &Arc<dyn Store>, service: &Arc<str>, records: Vec<Fresh>, beside: bool) -> Vec<Share> {
    let (mut rest, mut shares) = (records.into_iter(), Vec::new());
    while rest.len() > 0 {
        let some: Vec<_> = rest.by_ref().take(MANY).collect();
        let (count, stage) = (some.len(), Mutex::new(Stage::Waiting(some)));
        let work = Arc::new(Work { store: store.clone(), service: service.clone(), count, stage });
        shares.push(Share { work, given: false });
    }
    if let Ok(runtime) = Handle::try_current()
        && (beside || shares.len() > 1)
    {
        for share in &mut shares {
            let work = share.work.clone();
            share.given = true;
            runtime.spawn(async move { work.help() });
        }
    }
    shares
}

impl Share {
    /// How many records they are.
    pub(super) fn len(&self) -> usize {
        self.work.count
    }

    /// Whether another thread was asked to decode them.
    pub(super) fn is_given(&self) -> bool {
        self.given
    }

    /// Decodes them now, unless somebody does.
    pub(super) fn help(&self) {
        self.work.help();
    }

    /// Whether they are decoded already.
    pub(super) fn is_done(&self) -> bool {
        self.work.stage.try_lock().is_ok_and(|stage| matches!(*stage, Stage::Done(..)))
    }

    /// The records in their order and what they say. Decodes them if nobody has begun to, and waits for the one who has, less than a
    /// millisecond.
    pub(super) fn finish(self) -> impl Iterator<Item = (Fresh, Said)> {
        let mut stage = self.work.stage.lock().unwrap_or_else(PoisonError::into_inner);
        self.work.decode(&mut stage);
        let (records, said) = match &mut *stage {
            Stage::Done(records, said) => (mem::take(records), mem::take(said)),
            Stage::Waiting(_) => (Vec::new(), Vec::new()), // Not after decoding.
        };
        records.into_iter().zip(said)
    }
}

impl Work {
    fn help(&self) {
        if let Ok(mut stage) = self.stage.try_lock() {
            self.decode(&mut stage);
        }
    }

    fn decode(&self, stage: &mut Stage) {
        let Stage::Waiting(records) = stage else { return };
        let say = |fresh: &Fresh| (!fresh.same).then(|| decode_one(&*self.store, &self.service, &fresh.record));
        let said = records.iter().map(say).collect();
        *stage = Stage::Done(mem::take(records), said);
    }
}

/// A hash of a value, so that one that is read again is known without decoding it.
pub(super) fn hash(value: &[u8]) -> u64 {
    xxh3_64(value)
}

fn corrupt(key: &str, why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read record", key, why)
}
