//! The client side: a channel over the instances of one watched service.
//!
//! A [`Channel`] owns one task, which follows the watch and keeps one transport per instance in a [`fleet::Fleet`]; a transport is a
//! task that dials, publishes its connection and dials again. A call asks the balancer for an instance and the fleet for its connection.

mod builder;
mod call;
mod claim;
mod connection;
mod deadline;
mod dial;
mod fleet;
mod key;
mod news;
mod outcome;
mod persist;
mod replay;
mod retries;
mod stream;
mod target;
mod transport;
mod wire;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use discovery_core::{Balancer, PickerFactory, Watch};
use tokio::task::AbortHandle;
use tonic::Status;
use tonic::body::Body;

pub use builder::ChannelBuilder;
pub use key::HashKey;
pub use retries::Retries;

use fleet::Fleet;

/// The answer to a call of a [`Channel`]: response headers, with a body that reports the outcome at its end.
///
/// # Cancel safety
/// Dropping it cancels the call; a request that was sent is reset on its connection, which stays usable.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Status>> + Send>>;

/// Calls the instances of one service, as the transport of any generated client. Clones share everything.
///
/// It is always ready: waiting, failing and reporting happen within the call, so that every error is a [`Status`] with its reason.
/// The picker chooses among the connected instances, and an instance that is still being dialled is waited for only if no other can
/// take the call. A request moves to another instance only while nothing of it was sent, and once where a server refused it unseen.
///
/// **Deadline**: a call waits for an instance that takes it, and then for all of its answer, up to its own `grpc-timeout`. The first ends in
/// `UNAVAILABLE` with the reason, the second in `DEADLINE_EXCEEDED`. How long calls without a deadline wait for an instance is up to
/// [`WhenEmpty`](crate::WhenEmpty).
///
/// **Outcome (P8)**: it is reported once, when the trailers arrive. `UNKNOWN`, `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED`, `INTERNAL`,
/// `UNAVAILABLE` and `DATA_LOSS` are failures of the instance, as are a broken connection and a missing status; `CANCELLED`, and
/// a response that is dropped before its end, count as cancelled; every other code is the application's answer, thus a success.
///
/// The watch drives the connections, whether or not requests flow: a new instance is dialled at once, and one that is gone gets no
/// further request, finishes those it has, and is closed. With the last clone all of that ends; responses that are still being read
/// can be read to their end.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Inner>,
}

struct Inner {
    fleet: Arc<Fleet>,
    /// Follows the watch and owns the transports' tasks.
    task: AbortHandle,
}

impl Channel {
    /// Makes a channel over a watched service with default options.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, as everything that starts tasks.
    pub fn new(watch: Watch, picker: impl PickerFactory) -> Self {
        Self::builder(watch, picker).build()
    }

    /// Starts building a channel with other options.
    pub fn builder(watch: Watch, picker: impl PickerFactory) -> ChannelBuilder {
        ChannelBuilder::new(watch, picker)
    }

    /// The balancer that picks for this channel, for its members, their counters and their freshness.
    pub fn balancer(&self) -> Balancer {
        self.inner.fleet.balancer().clone()
    }

    /// How many instances are connected right now.
    pub fn connected(&self) -> usize {
        self.inner.fleet.connected()
    }

    /// How many of the connected get their share of the calls from now on. Who has just connected is picked a moment later, and for that
    /// moment there may seem to be fewer than there are.
    pub fn sharing(&self) -> usize {
        self.connected().min(self.inner.fleet.balancer().candidates())
    }
}

impl tower_service::Service<http::Request<Body>> for Channel {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> ResponseFuture {
        // The clone keeps the connections until the headers are there, even if the channel is dropped meanwhile.
        let channel = self.clone();
        Box::pin(async move { call::call(&channel.inner.fleet, &mut request).await })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("balancer", self.inner.fleet.balancer())
            .field("connected", &self.connected())
            .finish_non_exhaustive()
    }
}
