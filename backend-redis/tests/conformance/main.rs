//! The Redis backend on real servers: the conformance suite, and what is particular to Redis.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

mod auth;
mod backup;
mod by_hand;
mod cluster;
mod expiry;
mod failover;
mod fixture;
mod hosts;
mod limits;
mod operator;
mod reading;
mod rights;
mod stage;
#[cfg(feature = "tls")]
mod tls;

discovery_core::conformance!(fixture::RedisFixture, #[tokio::test(flavor = "multi_thread", worker_threads = 2)]);
