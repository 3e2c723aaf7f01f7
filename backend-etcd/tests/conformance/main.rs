//! The etcd backend on real servers: the conformance suite, and what is particular to etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

mod auth;
mod backup;
mod fixture;
mod hosts;
mod limits;
mod rights;
#[cfg(feature = "tls")]
mod tls;

discovery_core::conformance!(fixture::EtcdFixture, #[tokio::test(flavor = "multi_thread", worker_threads = 2)]);
