//! Active health checks for discovery-kit: who is registered and does not do its work gets no requests.
//!
//! A [`Checker`] follows a watch, asks every instance of it at an interval, and tells what it found to all balancers that are
//! [attached](Checker::attach). So a process checks a service once, however many balancers it has.
//!
//! **Handles**: [TCP](TcpCheck), [HTTP](HttpCheck) and the [standard gRPC health protocol](GrpcCheck), and [anything else](Check);
//! thresholds, jittered intervals, a bound on checks at once; what was found last, since when and why.
//! **Does not contain**: TLS, any choice of instances (the balancer's), any reaction to requests that fail (its outlier ejection).
//!
//! An instance is healthy until its checks have failed often enough: it registered itself, and that is a word for it. So newcomers
//! get requests before their first check, and an instance without an endpoint that can be checked counts as healthy for ever.
//!
//! ```
//! use std::time::Duration;
//! use discovery_core::{Balancer, Discovery, memory::MemoryStore, picker::RoundRobin};
//! use discovery_health::{Checker, CheckerOptions, GrpcCheck};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let backend = MemoryStore::new().connect();
//! let balancer = Balancer::new(backend.watch("orders"), RoundRobin::new());
//!
//! let options = CheckerOptions::default().with_interval(Duration::from_secs(5));
//! let checker = Checker::with_options(backend.watch("orders"), GrpcCheck::default(), options);
//! // Holds while it lives, and keeps the checker.
//! let attachment = checker.attach(&balancer);
//! # drop(attachment);
//! # }
//! ```

mod attachment;
mod board;
mod check;
mod checker;
mod dial;
mod follow;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod grpc;
mod http;
mod options;
mod pace;
mod report;
mod round;
mod slots;
mod tally;
mod tcp;

pub use attachment::Attachment;
pub use check::Check;
pub use checker::Checker;
pub use grpc::GrpcCheck;
pub use http::HttpCheck;
pub use options::CheckerOptions;
pub use report::{LastCheck, Report, Verdict};
pub use slots::Slots;
pub use tcp::TcpCheck;
