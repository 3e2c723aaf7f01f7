//! Records as they come from a store: what is believed reads the same after it was written again.

#![no_main]

use discovery_core::{Key, decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    let key = Key { service: "pay".into(), id: "a".into() };
    let Ok(decoded) = decode(&key, value) else { return };
    let instance = decoded.instance;
    assert_eq!((instance.service(), instance.id()), ("pay", "a"));
    assert!(!instance.endpoints().is_empty());
    let _ = instance.started_at();
    let written = encode(&instance);
    let again = decode(&key, &written).expect("what was written can be read");
    assert_eq!(again.instance, instance);
    assert_eq!(again.repaired, None, "what was written needs no repair");
    assert_eq!(encode(&again.instance), written);
});
