//! The adapters against tower's and hyper-util's own parts, and real HTTP servers on loopback.

#![cfg(feature = "connector")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod stage;

mod cases {
    mod connecting;
    mod discovering;
    mod picking;
}
