//! Keys of the common layout: names never reach each other, and only what is written is read.

#![no_main]

use discovery_core::{Key, KeySpace, check_name};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let space = KeySpace::new("/a/b").expect("a prefix");
    discovery_etcd::fuzzing::read_key(&space, input);
    discovery_etcd::fuzzing::read_key(&space, &[b"/a/b/", input].concat());
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (prefix, rest) = text.split_once('\n').unwrap_or(("", text));
    let (service, id) = rest.split_once('\n').unwrap_or((rest, "a"));
    let Ok(space) = KeySpace::new(prefix) else { return };
    assert_eq!(KeySpace::new(space.prefix()).ok().as_ref(), Some(&space), "a prefix is normal once it was read");
    if check_name("service", service).is_err() || check_name("instance id", id).is_err() {
        return;
    }
    let key = Key { service: service.into(), id: id.into() };
    let written = space.key(&key);
    assert_eq!(space.parse(&written), Some(key));
    assert!(written.starts_with(&space.root()) && written.starts_with(&space.service_prefix(service)));
    let below = &written[space.root().len()..];
    assert_eq!(below.split('/').count(), 2, "{written}");
    assert!(below.split('/').all(|segment| !segment.is_empty() && segment != "." && segment != ".."), "{written}");
});
