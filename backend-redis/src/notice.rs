//! One published change.

use std::time::Duration;

use discovery_core::store::{RawChange, RawRecord};

use crate::layout::PublicKeys;

/// The id of a record as it is in Redis: whatever somebody wrote there by hand, and in this layout ASCII.
pub(crate) type Id = Vec<u8>;

/// What the script publishes with each change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The version before the change; 0 if nothing had been counted.
    pub(crate) before: u64,
    /// The version of the change.
    pub(crate) version: u64,
    /// How long the record lives unless it is renewed; `None` without an end.
    pub(crate) ttl: Option<Duration>,
    pub(crate) id: Id,
    /// The value; `None` for a removal.
    pub(crate) value: Option<Vec<u8>>,
}

impl Notice {
    /// Reads a message; `None` for anything that the script never publishes.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let end = message.iter().position(|byte| *byte == b'\n')?;
        let (head, body) = (std::str::from_utf8(&message[..end]).ok()?, &message[end + 1..]);
        let mut words = head.split(' ');
        let (before, version) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (kind, ttl, length) = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse::<usize>().ok()?);
        let (id, value) = body.split_at_checked(length)?;
        let value = match kind {
            "put" => Some(value.to_vec()),
            "delete" => None,
            _ => return None,
        };
        let ttl = (ttl > 0).then(|| Duration::from_millis(ttl));
        words.next().is_none().then(|| Self { before, version, ttl, id: id.to_vec(), value })
    }

    /// The change as the engine takes it.
    pub(crate) fn change(self, keys: &PublicKeys) -> RawChange {
        let key = keys.of(&self.id);
        match self.value {
            Some(value) => RawChange::Put(RawRecord { key, revision: self.version, value }),
            None => RawChange::Delete(key, self.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f09_only_what_the_script_publishes_is_read() {
        let put = Notice::parse(b"7 8 put 3000 1\na{\"v\":1}").unwrap();
        assert_eq!((put.before, put.version, put.ttl), (7, 8, Some(Duration::from_secs(3))));
        assert_eq!((put.id.as_slice(), put.value.as_deref()), (b"a".as_slice(), Some(b"{\"v\":1}".as_slice())));
        let gone = Notice::parse(b"8 9 delete 0 3\na\nb").unwrap();
        assert_eq!((gone.id.as_slice(), gone.value, gone.ttl), (b"a\nb".as_slice(), None, None));
        for junk in [
            b"".as_slice(),
            b"\n",
            b"hello",
            b"1 2 put 0 9\na",
            b"1 2 put 0 18446744073709551615\na",
            b"1 2 patch 0 1\na",
            b"1 -2 put 0 1\na",
            b"1 2 put 0 1 x\na",
            b"\xff\xfe\n\x00",
        ] {
            assert_eq!(Notice::parse(junk), None, "{junk:?}");
        }
    }
}
