//! What the fuzz targets reach of this crate; built with `--cfg fuzzing` alone.

use discovery_core::{KeySpace, Policy, RegistryUrl, Result};

/// Reads a URL as [`connect`](crate::connect) does, and dials nothing.
///
/// # Errors
/// As `connect`.
pub fn read_url(url: &RegistryUrl) -> Result<()> {
    let mut options = url.options();
    let policy = Policy::from_url(&mut options)?;
    crate::store(url, options, &policy).map(drop)
}

/// Reads a key as it came from the store. Of two keys that differ, no two are the same record's.
pub fn read_key(space: &KeySpace, raw: &[u8]) {
    let text = crate::load::text(raw.to_vec());
    if let Some(key) = space.parse(&text) {
        assert_eq!(space.key(&key).as_bytes(), raw, "another key than the one that is written for {key}");
    }
}
