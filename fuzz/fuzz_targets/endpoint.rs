//! Endpoints: there is one way to write each.

#![no_main]

use discovery_core::Endpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for scheme in [None, Some("grpc")] {
        if let Ok(endpoint) = Endpoint::parse(text, scheme) {
            let written = endpoint.to_string();
            assert_eq!(Endpoint::parse(&written, None).ok().as_ref(), Some(&endpoint), "{written}");
            assert!(endpoint.port() > 0 || endpoint.unix_path().is_some());
        }
    }
});
