//! The heart of discovery-kit: model, contracts, engines and pickers.
//!
//! A service registers an [`Instance`] through a [`Registry`] and keeps a [`Registration`]; a client watches a service through
//! [`Discovery`] and picks an instance for each request through a [`Balancer`]. The contracts that every backend keeps are numbered
//! in the docs of those traits, and the `conformance` suite (feature `conformance`) has a test for each.
//!
//! **Handles**: the model, repair of registrations, joining of snapshots and notifications, staleness, the brake, reconciliation,
//! picking, and the backends that need no server ([`memory`], [`fixed`]).
//! **Does not contain**: any client library, any gRPC or HTTP, any network access.
//!
//! ```
//! use std::time::Duration;
//! use discovery_core::{Balancer, Context, Instance, RegisterOptions, memory::MemoryStore, picker::RoundRobin};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> discovery_core::Result<()> {
//! let backend = MemoryStore::new().connect();
//! let instance = Instance::builder("orders").endpoint("grpc://10.0.0.5:9000").build()?;
//! let registration = backend.register(instance, RegisterOptions::default()).await?;
//!
//! let balancer = Balancer::new(backend.watch("orders"), RoundRobin::new());
//! let pick = balancer.pick_within(&Context::default(), Duration::from_secs(1)).await?;
//! assert_eq!(pick.instance().id(), "10.0.0.5:9000");
//! # registration.deregister().await
//! # }
//! ```

pub mod advertise;
pub mod attempts;
mod balancer;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod engine;
mod error;
pub mod fixed;
mod hosts;
pub mod memory;
mod model;
pub mod multi;
mod patience;
pub mod picker;
mod registry;
mod roster;
mod set;
#[cfg(feature = "simulation")]
pub mod simulation;
mod snapshot;
mod stamps;
pub mod store;
mod sync;
mod url;

pub use balancer::{
    Balancer, BalancerOptions, Comparison, Condition, EjectionCause, FailurePercentage, Filter, Outcome, Outliers,
    Pick, Priorities, Reader, Reason, SPILL_FACTOR, Selections, SlowStart, StalePolicy, Standing, SuccessRate, Traffic,
    Zone,
};
pub use clock::{Clock, ManualClock, Moment};
pub use engine::{Backoff, Brake, CacheStatus, DiskCache, Engine, Policy};
pub use error::{Error, ErrorKind, Result};
pub use model::{
    DEFAULT_WEIGHT, Decoded, Endpoint, Instance, InstanceBuilder, Key, KeySpace, MAX_ENDPOINTS, MAX_METADATA,
    MAX_NAME_BYTES, RECORD_VERSION, State, check_name, decode, encode,
};
pub use patience::{DEFAULT_WAIT, WhenEmpty};
pub use picker::{Context, Headers, Member, Picker, PickerFactory};
pub use registry::{Backend, Discovery, RegisterOptions, Registration, RegistrationState, Registry, Watch};
pub use roster::{Roster, Step};
pub use set::{Change, InstanceSet};
pub use snapshot::{Freshness, ServiceNames, Since, Snapshot};
pub use url::{Login, RegistryUrl, TlsFiles, TlsMaterial, UrlOptions};
