//! The client against real HTTP servers on loopback, on the in-memory backend.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod stage;

mod cases {
    mod credentials;
    mod empty;
    mod failover;
    mod kept;
    mod keys;
    mod lifetime;
    mod names;
    mod outcomes;
    mod patience;
    mod redirects;
    mod resolver;
    mod retries;
    mod settings;
    mod tls;
}
