//! discovery-kit for those who have a tower or hyper stack of their own.
//!
//! **Handles**: [`Discovered`], a [`Discover`](tower::discover::Discover) stream for load balancers of tower's kind; [`BalanceLayer`],
//! which picks an instance for each request with a [`Balancer`](discovery_core::Balancer) and reports how it ended; and with the feature
//! `connector` a `Connector`, by which an HTTP client dials a service by its name.
//! **Does not contain**: connections, retries, anything about a protocol or a particular registry.
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::Arc;
//! use discovery_core::{Balancer, Discovery, Instance, fixed, picker::RoundRobin};
//! use discovery_tower::BalanceLayer;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower::BoxError> {
//! let registry = fixed::connect(&"static:///10.0.0.5:9000,10.0.0.6:9000".parse()?)?;
//! let balancer = Balancer::new(registry.watch("orders"), RoundRobin::new());
//!
//! // Whatever calls an instance: it is told which.
//! let call = service_fn(async |(instance, request): (Arc<Instance>, &str)| {
//!     Ok::<_, Infallible>(format!("{request} at {}", instance.endpoints()[0]))
//! });
//! let orders = BalanceLayer::new(balancer).layer(call);
//! assert!(orders.oneshot("hello").await?.starts_with("hello at tcp://10.0.0."));
//! # Ok(())
//! # }
//! ```

mod classify;
#[cfg(feature = "connector")]
mod connector;
mod discover;
mod layer;

pub use classify::{ByResult, Classify};
#[cfg(feature = "connector")]
pub use connector::Connector;
pub use discover::Discovered;
pub use layer::{BalanceLayer, Balanced};
