//! The channel and the server against each other, on the in-memory backend and real TCP on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod stage;

mod cases {
    mod balance;
    #[cfg(feature = "balance-channel")]
    mod change;
    mod crowd;
    mod empty;
    mod health;
    mod hedges;
    mod keys;
    mod lifetime;
    mod limits;
    mod outcomes;
    mod pings;
    mod resets;
    mod retries;
    #[cfg(all(unix, feature = "tls"))]
    mod secure;
    mod server;
    mod streams;
}
