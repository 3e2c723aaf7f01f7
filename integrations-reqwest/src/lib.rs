//! discovery-kit for reqwest: a [`Client`] and a [`DiscoveryMiddleware`] that call services by name.
//!
//! `http://orders/path`, `https://orders/path` and `discovery://orders/path` go to an instance of the service `orders`; [`ServiceHosts`]
//! says which hosts are services, and every other URL is passed on untouched.
//!
//! **Handles**: one `reqwest::Client` per instance under a logical name, so that `Host`, SNI and certificate name are right; the choice of
//! an instance for every attempt; waiting for one; moving on with the body untouched while nothing was sent; retries within a budget;
//! redirects to services; the outcome of each attempt at the end of its response's body (P8).
//! **Does not contain**: buffering of bodies, Unix sockets, anything about a particular registry.
//!
//! ```
//! use discovery_core::{Instance, RegisterOptions, memory::MemoryStore};
//! use discovery_reqwest::Client;
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let address = listener.local_addr()?;
//! # tokio::spawn(async move {
//! #     let (mut stream, _) = listener.accept().await?;
//! #     stream.read(&mut [0; 1024]).await?;
//! #     stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await
//! # });
//! let backend = MemoryStore::new().connect();
//! let instance = Instance::builder("orders").endpoint(&format!("http://{address}")).build()?;
//! let _registration = backend.register(instance, RegisterOptions::default()).await?;
//!
//! let client = Client::new(backend)?;
//! let text = client.get("http://orders/hello").send().await?.text().await?;
//! assert_eq!(text, "hello");
//! # Ok(())
//! # }
//! ```

mod absence;
mod attempt;
mod body;
mod builder;
mod call;
mod called;
mod client;
mod error;
mod hosts;
mod key;
mod middleware;
mod outcome;
mod pin;
mod redirect;
mod resolver;
mod retries;
mod service;
mod services;
mod target;

pub use builder::ClientBuilder;
pub use called::Called;
pub use client::Client;
pub use discovery_core::WhenEmpty;
pub use error::CallError;
pub use hosts::ServiceHosts;
pub use key::HashKey;
pub use middleware::DiscoveryMiddleware;
pub use resolver::ServiceResolver;
pub use retries::Retries;
pub use target::TLS_NAME;
