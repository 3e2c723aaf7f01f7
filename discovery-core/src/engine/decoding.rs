//! From what a store holds to instances, on all processors where there is much of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use crate::model::{Key, decode};
use crate::store::{RawRecord, Store};
use crate::{Error, ErrorKind, Instance, Result};

/// Fewer records than this are decoded where they are, in a millisecond or two.
const MANY: usize = 2_000;

/// A record that was believed.
pub(super) struct Known {
    pub(super) id: Arc<str>,
    pub(super) instance: Instance,
    /// What had to be replaced by a default.
    pub(super) repaired: Option<String>,
}

/// The hash of a value, and what it says.
type Read = (u64, Result<Known>);

/// Decodes one record of a service.
///
/// # Errors
/// `Corrupt`, saying what is wrong with it.
pub(super) fn decode_one(store: &dyn Store, service: &Arc<str>, record: &RawRecord) -> Result<Known> {
    let Some(key) = store.parse_key(&record.key).filter(|key| key.service == *service) else {
        return Err(corrupt(&record.key, "the key is not one of this layout"));
    };
    let limit = store.capabilities().max_record;
    if record.value.len() > limit {
        return Err(corrupt(&record.key, &format!("{} bytes are above the limit of {limit}", record.value.len())));
    }
    // All instances share one name of their service.
    let key = Key { service: service.clone(), id: key.id };
    let decoded = decode(&key, &record.value)?;
    Ok(Known { id: key.id, instance: decoded.instance, repaired: decoded.repaired })
}

/// Decodes records in their order. A set of 10,000 would hold its thread for tens of milliseconds, so other processors help.
pub(super) fn decode_all(store: &dyn Store, service: &Arc<str>, records: &[RawRecord]) -> Vec<Read> {
    let decode = |part: &[RawRecord]| -> Vec<Read> {
        part.iter().map(|record| (hash(&record.value), decode_one(store, service, record))).collect()
    };
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    if records.len() < MANY || processors == 1 {
        return decode(records);
    }
    let share = records.len().div_ceil(processors).max(MANY / 2);
    thread::scope(|scope| {
        let (own, others) = records.split_at(share);
        let helpers: Vec<_> = others
            .chunks(share)
            .map(|part| (part, thread::Builder::new().spawn_scoped(scope, || decode(part))))
            .collect();
        let mut all = decode(own);
        for (part, helper) in helpers {
            let decoded = helper.ok().and_then(|helper| helper.join().ok());
            // Where there is no thread to be had.
            all.extend(decoded.unwrap_or_else(|| decode(part)));
        }
        all
    })
}

/// A hash of a value, so that one that is read again is known without decoding it.
pub(super) fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn corrupt(key: &str, why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read record", key, why)
}
