//! The checker: on paused time with scripted checks, and against servers on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect")]

mod stage;

mod cases {
    mod attaching;
    mod counting;
    mod grpc;
    mod http;
    mod living;
    mod pacing;
    mod picking;
    mod servers;
    mod tcp;
}
