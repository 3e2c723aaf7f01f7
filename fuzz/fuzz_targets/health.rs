//! Answers of gRPC's health protocol.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &[u8]| discovery_health::fuzzing::read_answer(answer));
