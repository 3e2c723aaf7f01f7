//! The order of versions: dotted numbers, and what comes before a release.
//!
//! Source of the rules: Semantic Versioning 2.0.0, §10 and §11 (semver.org), applied to any count of parts.

use std::cmp::Ordering;

/// Compares two versions: parts between dots as numbers where both are, a missing part as 0, a pre-release (`-rc.1`) before its release.
/// A leading `v` and the build (`+…`) do not count. Numbers come before texts, of which nothing is known.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let ((core_a, early_a), (core_b, early_b)) = (split(a), split(b));
    parts(core_a, core_b, Some("0")).then_with(|| match (early_a, early_b) {
        (Some(a), Some(b)) => parts(a, b, None),
        (a, b) => a.is_none().cmp(&b.is_none()),
    })
}

fn split(version: &str) -> (&str, Option<&str>) {
    let version = version.trim();
    let version = version.strip_prefix(['v', 'V']).unwrap_or(version);
    let version = version.split_once('+').map_or(version, |(version, _build)| version);
    version.split_once('-').map_or((version, None), |(core, early)| (core, Some(early)))
}

/// Compares part by part. Where one has no more, `missing` stands in; without that, whoever has fewer comes first.
fn parts(a: &str, b: &str, missing: Option<&str>) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let (one, other) = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (one, other) => (one.or(missing), other.or(missing)),
        };
        let order = match (one, other) {
            (Some(one), Some(other)) => part(one, other),
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn part(a: &str, b: &str) -> Ordering {
    match (number(a), number(b)) {
        // Numbers of any length: without leading zeros the longer is the larger.
        (Some(a), Some(b)) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        (None, None) => a.cmp(b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn number(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_in_their_order() {
        let ordered = [
            "0.9",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "v1",
            "1.0.1",
            "1.2",
            "1.10",
            "2.0",
            "18446744073709551616.0",
            "main",
        ];
        for (at, a) in ordered.iter().enumerate() {
            for (other, b) in ordered.iter().enumerate() {
                assert_eq!(compare(a, b), at.cmp(&other), "{a} {b}");
            }
        }
        for same in ["1", "1.0", "v1.0.0", " 1.00 ", "1.0+build.7"] {
            assert_eq!(compare(same, "1.0.0"), Ordering::Equal, "{same}");
        }
    }

    proptest! {
        #[test]
        fn any_texts_have_an_order(a in "\\PC{0,12}", b in "\\PC{0,12}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &a), Ordering::Equal);
        }
    }
}
