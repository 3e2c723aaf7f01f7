//! Answers and pushes of a Redis server, from their bytes on.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| discovery_redis::fuzzing::read_answer(bytes));
