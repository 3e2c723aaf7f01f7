//! What is registered and found: instances, their endpoints, and the names and records that carry them.

mod endpoint;
mod instance;
mod keyspace;
mod name;
mod record;

pub use endpoint::Endpoint;
pub(crate) use endpoint::split_authority;
pub use instance::{DEFAULT_WEIGHT, Instance, InstanceBuilder, MAX_ENDPOINTS, MAX_METADATA, State};
pub use keyspace::{Key, KeySpace};
pub use name::{MAX_NAME_BYTES, check_name};
pub use record::{Decoded, RECORD_VERSION, decode, encode};
