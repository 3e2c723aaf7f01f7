//! End to end: the examples as a user runs them, and real processes on real registries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[cfg(all(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod addresses;
#[cfg(feature = "etcd")]
mod calls;
#[cfg(feature = "etcd")]
mod etcd;
mod examples;
#[cfg(feature = "etcd")]
mod gateway;
#[cfg(all(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod ghosts;
#[cfg(all(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod moving;
mod node;
#[cfg(all(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod registry;
#[cfg(all(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod story;
