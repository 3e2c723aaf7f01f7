//! Names of ZooKeeper's nodes, and following them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for name in text.lines().take(8) {
        discovery_zookeeper::fuzzing::read_name(name);
    }
    discovery_zookeeper::fuzzing::follow_nodes(text);
});
