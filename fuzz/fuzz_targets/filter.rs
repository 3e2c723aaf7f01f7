//! Expressions of filters.

#![no_main]

use discovery_core::{Filter, Instance};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let (text, version) = input.split_once('\n').unwrap_or((input, "1.10"));
    let Ok(filter) = Filter::expression(text) else { return };
    let instance = Instance::builder("pay").id("a").endpoint("grpc://h:1").version(version).zone("eu");
    let instance = instance.metadata("env", "prod").build().expect("an instance");
    let admitted = filter.admits(&instance);
    // Spaces around the commas are no matter.
    let again = Filter::expression(&format!(" {text} ")).expect("the same expression");
    assert_eq!(again.admits(&instance), admitted);
});
