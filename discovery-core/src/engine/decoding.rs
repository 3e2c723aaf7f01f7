//! From what a store holds to instances.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::model::{Key, decode};
use crate::store::{RawRecord, Store};
use crate::{Error, ErrorKind, Instance, Result};

/// A record that was believed.
pub(super) struct Known {
    pub(super) id: Arc<str>,
    pub(super) instance: Instance,
    /// What had to be replaced by a default.
    pub(super) repaired: Option<String>,
}

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

/// A hash of a value, so that one that is read again is known without decoding it.
pub(super) fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn corrupt(key: &str, why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read record", key, why)
}
