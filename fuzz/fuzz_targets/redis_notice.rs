//! Messages on a Redis channel, which everybody may publish.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| discovery_redis::fuzzing::read_notice(message));
