//! Names of services and ids of instances, and their form inside a store's key.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{Error, Result};

/// The longest name of a service or id of an instance, in bytes.
///
/// Encoded it triples at most, which stays below every store's limit for one path segment.
pub const MAX_NAME_BYTES: usize = 255;

/// RFC 3986's unreserved characters stay as they are; everything else is encoded, `/` above all.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Checks a service's name or an instance's id.
///
/// Any text is allowed, other scripts and `/` included: keys are percent-encoded, so no name reaches another's.
///
/// # Errors
/// `InvalidInput` if the name is empty, longer than [`MAX_NAME_BYTES`], or has a control character.
pub fn check_name(what: &'static str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("use", what, "it is empty; give it at least one character"));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::invalid(
            "use",
            format!("{what} of {} bytes", name.len()),
            format!("at most {MAX_NAME_BYTES} bytes are allowed"),
        ));
    }
    if let Some(c) = name.chars().find(|c| c.is_control()) {
        return Err(Error::invalid(
            "use",
            format!("{what} {name:?}"),
            format!("the control character {c:?} cannot be stored"),
        ));
    }
    Ok(())
}

/// Writes a name as one segment of a key.
pub(crate) fn encode_segment(name: &str) -> Cow<'_, str> {
    if is_plain(name) {
        return name.into();
    }
    // ZooKeeper refuses the relative segments `.` and `..`, so their dots are encoded.
    if name.bytes().all(|b| b == b'.') {
        return "%2E".repeat(name.len()).into();
    }
    utf8_percent_encode(name, RESERVED).into()
}

/// Whether a name is its own segment, as most are.
fn is_plain(name: &str) -> bool {
    let unreserved = |b: &u8| b.is_ascii_alphanumeric() || b"-._~".contains(b);
    name.as_bytes().iter().all(unreserved) && name.bytes().any(|b| b != b'.')
}

/// Reads a segment back; `None` unless it is exactly what [`encode_segment`] writes.
///
/// Only the canonical form counts, or two different keys could claim to be the same instance.
pub(crate) fn decode_segment(segment: &str) -> Option<Cow<'_, str>> {
    if is_plain(segment) {
        return Some(segment.into());
    }
    let name = percent_decode_str(segment).decode_utf8().ok()?;
    (!name.is_empty() && encode_segment(&name) == segment).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn relative_segments_are_encoded() {
        assert_eq!(encode_segment("."), "%2E");
        assert_eq!(encode_segment(".."), "%2E%2E");
        assert_eq!(encode_segment("a.b"), "a.b");
    }

    #[test]
    fn only_the_canonical_form_is_read() {
        assert_eq!(decode_segment("pay%2Fv2").as_deref(), Some("pay/v2"));
        assert_eq!(decode_segment("pay%2fv2"), None);
        assert_eq!(decode_segment("%70ay"), None);
        assert_eq!(decode_segment("pay/v2"), None);
        assert_eq!(decode_segment("%FF"), None);
        assert_eq!(decode_segment(""), None);
    }

    proptest! {
        #[test]
        fn every_name_survives_the_round_trip(name in "\\PC{1,60}") {
            let segment = encode_segment(&name);
            prop_assert!(!segment.contains('/'));
            let read = decode_segment(&segment);
            prop_assert_eq!(read.as_deref(), Some(&*name));
        }

        #[test]
        fn no_input_panics(name in any::<String>()) {
            let _ = check_name("service", &name);
            let _ = decode_segment(&name);
        }
    }
}
