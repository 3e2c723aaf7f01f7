//! Where records live: `{prefix}/{service}/{id}`, each segment percent-encoded.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::name::{decode_segment, encode_segment};
use crate::{Error, Result};

/// Names one record: a service and the id of one of its instances.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The service's name as the user wrote it.
    pub service: Arc<str>,
    /// The instance's id as the user wrote it.
    pub id: Arc<str>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.id)
    }
}

/// The native layout of keys under a prefix, the same in every store.
///
/// The prefix is the namespace: two different prefixes never see each other (W11), because the separator always ends a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpace {
    prefix: String,
}

impl KeySpace {
    /// The prefix that is used where a URL names none.
    pub const DEFAULT_PREFIX: &'static str = "/discovery";

    /// Makes a key space of a prefix; an empty one stands for [`KeySpace::DEFAULT_PREFIX`].
    ///
    /// # Errors
    /// `InvalidInput` if a segment of the prefix is empty, relative, or has a control character.
    pub fn new(prefix: &str) -> Result<Self> {
        let trimmed = prefix.strip_suffix('/').unwrap_or(prefix);
        if trimmed.is_empty() {
            return Ok(Self { prefix: Self::DEFAULT_PREFIX.to_owned() });
        }
        let path = trimmed.strip_prefix('/').unwrap_or(trimmed);
        for segment in path.split('/') {
            if segment.is_empty() || segment == "." || segment == ".." || segment.chars().any(char::is_control) {
                return Err(Error::invalid(
                    "use",
                    format!("prefix {prefix:?}"),
                    "write it as /segment/segment without empty, relative or control segments",
                ));
            }
        }
        Ok(Self { prefix: format!("/{path}") })
    }

    /// The prefix, without its trailing separator.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The prefix of every record, with the separator that ends it.
    pub fn root(&self) -> String {
        format!("{}/", self.prefix)
    }

    /// The prefix of a service's records, with the separator that ends it.
    pub fn service_prefix(&self, service: &str) -> String {
        format!("{}/{}/", self.prefix, encode_segment(service))
    }

    /// The key of one record.
    pub fn key(&self, key: &Key) -> String {
        format!("{}{}", self.service_prefix(&key.service), encode_segment(&key.id))
    }

    /// Reads a key back; `None` for a key that this layout never writes.
    pub fn parse(&self, key: &str) -> Option<Key> {
        let (service, id) = self.split(key)?;
        Some(Key { service: service.into(), id: id.into() })
    }

    /// Reads the service and the id of a key, borrowed where they are written as they are.
    pub fn split<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        let rest = key.strip_prefix(&self.prefix)?.strip_prefix('/')?;
        let (service, id) = rest.split_once('/')?;
        Some((decode_segment(service)?, decode_segment(id)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(service: &str, id: &str) -> Key {
        Key { service: service.into(), id: id.into() }
    }

    #[test]
    fn f07_no_name_reaches_another() {
        let space = KeySpace::new("/prod").unwrap();
        let names = ["pay", "pay-v2", "pay/v2", "payroll", "PAY", "pay%2Fv2"];
        for a in names {
            for b in names.iter().filter(|b| **b != a) {
                assert!(!space.key(&key(b, "1")).starts_with(&space.service_prefix(a)), "{a} sees {b}");
            }
        }
        let other = KeySpace::new("/prod-eu").unwrap();
        assert!(!other.key(&key("pay", "1")).starts_with(&space.root()));
        assert_eq!(space.parse(&other.key(&key("pay", "1"))), None);
    }

    #[test]
    fn prefixes_are_normalised_or_refused() {
        assert_eq!(KeySpace::new("").unwrap().prefix(), "/discovery");
        assert_eq!(KeySpace::new("/").unwrap().prefix(), "/discovery");
        assert_eq!(KeySpace::new("a/b/").unwrap().prefix(), "/a/b");
        for bad in ["//", "/a//b", "/a/../b", "/a/./b", "/a\u{0}"] {
            assert!(KeySpace::new(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_key_survives_the_round_trip(service in "\\PC{1,40}", id in "\\PC{1,40}") {
            let space = KeySpace::new("/a/b").unwrap();
            let key = key(&service, &id);
            prop_assert_eq!(space.parse(&space.key(&key)), Some(key));
        }
    }
}
