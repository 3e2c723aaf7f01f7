//! The ZooKeeper backend on real servers: the conformance suite, and what is particular to ZooKeeper.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

mod auth;
mod backup;
mod child_watches;
mod fixture;
mod hosts;
mod pages;
mod raw;
mod rights;
mod stage;
#[cfg(feature = "tls")]
mod tls;
mod tree;

discovery_core::conformance!(fixture::ZooKeeperFixture, #[tokio::test(flavor = "multi_thread", worker_threads = 2)]);
