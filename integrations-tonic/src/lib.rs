//! discovery-kit for tonic: a [`Channel`] that generated clients accept, and a [`ServiceServer`] that registers what it serves.
//!
//! **Handles**: one supervised HTTP/2 connection per instance, driven by the watch whether or not requests flow; the choice of a
//! connected instance for every call; waiting for one within the caller's deadline; the outcome of each call at the end of its
//! response; binding, registering, draining and stopping a server. With the feature `balance-channel`, `feed` keeps tonic's own channel in
//! step with a watch instead.
//! **Does not contain**: anything about a particular registry; a buffer of any request, unless [retries](Retries) are asked for.
//!
//! ```
//! use std::time::Duration;
//! use discovery_core::{Discovery, memory::MemoryStore, picker::RoundRobin};
//! use discovery_tonic::{Channel, ServiceServer};
//! use tonic::service::Routes;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> discovery_core::Result<()> {
//! let backend = MemoryStore::new().connect();
//! let server = ServiceServer::bind("127.0.0.1:0").await?.with_grace(Duration::ZERO);
//! let running = server.start(backend.clone(), "greeter", Routes::default()).await?;
//!
//! let channel = Channel::new(backend.watch("greeter"), RoundRobin::new());
//! // `GreeterClient::new(channel)`, or any other generated client.
//! let client = tonic::client::Grpc::new(channel);
//! # drop(client);
//! running.shutdown().await
//! # }
//! ```

#[cfg(feature = "balance-channel")]
mod balance;
mod channel;
mod server;

#[cfg(feature = "balance-channel")]
pub use balance::feed;
pub use channel::{Channel, ChannelBuilder, HashKey, ResponseFuture, Retries};
pub use discovery_core::WhenEmpty;
pub use server::{RunningServer, ServiceServer};
