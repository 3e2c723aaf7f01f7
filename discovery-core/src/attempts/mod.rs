//! When a request is sent again, and when it is sent twice: policies that the integrations use, each bounded.
//!
//! A failover is neither: a request whose connection was never made goes to another instance and costs nothing here.

mod budget;
mod hedge;
mod latencies;
mod retry;

pub use budget::RetryBudget;
pub use hedge::{Hedge, HedgeOptions};
pub use retry::RetryPolicy;
