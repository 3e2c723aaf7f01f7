//! Client-side service discovery: register a service and keep it registered, watch who is there, pick one for this request, and call it,
//! over etcd, ZooKeeper or Redis, with the same promises on every registry.
//!
//! [`connect`] opens a registry by its URL; everything else is the same on each:
//!
//! ```
//! use std::time::Duration;
//! use discovery_kit::{Balancer, Context, Instance, Outcome, RegisterOptions, picker::RoundRobin};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> discovery_kit::Result<()> {
//! let registry = discovery_kit::connect("memory:")?;
//!
//! // A server: registered until the handle is dropped.
//! let instance = Instance::builder("orders").endpoint("grpc://10.0.0.5:9000").zone("eu-1").build()?;
//! let registration = registry.register(instance, RegisterOptions::default()).await?;
//!
//! // A client: a balancer follows the service and picks for each request.
//! let orders = Balancer::new(registry.watch("orders"), RoundRobin::new());
//! let pick = orders.pick_within(&Context::default(), Duration::from_secs(1)).await?;
//! println!("calling {}", pick.instance().endpoints()[0]);
//! pick.finish(Outcome::Success);
//! # registration.deregister().await
//! # }
//! ```
//!
//! The promises are numbered in the docs of [`Registry`], [`Discovery`] and [`picker`], and each is tested under its number on each
//! registry. With the feature `tonic`, `discovery_kit::tonic` has a channel for generated clients and a server that registers itself; with the
//! feature `reqwest`, `discovery_kit::reqwest` has a client that calls services by name.

mod schemes;
mod sides;

pub use discovery_core::*;
pub use schemes::{Connector, Schemes, connect};

/// The etcd backend, for those who open it by hand.
#[cfg(feature = "etcd")]
pub use discovery_etcd as etcd;

/// The Redis backend, for those who open it by hand.
#[cfg(feature = "redis")]
pub use discovery_redis as redis;
/// The ZooKeeper backend, for those who open it by hand.
#[cfg(feature = "zookeeper")]
pub use discovery_zookeeper as zookeeper;

/// Active health checks.
#[cfg(feature = "health")]
pub use discovery_health as health;

/// A client and a middleware for reqwest.
#[cfg(feature = "reqwest")]
pub use discovery_reqwest as reqwest;

/// Channels and servers for tonic.
#[cfg(feature = "tonic")]
pub use discovery_tonic as tonic;

/// Adapters for tower and hyper stacks of one's own.
#[cfg(feature = "tower")]
pub use discovery_tower as tower;
