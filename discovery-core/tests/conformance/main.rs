//! The conformance suite on the in-memory backend, and on two of them as one, on paused time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;
mod multi;
