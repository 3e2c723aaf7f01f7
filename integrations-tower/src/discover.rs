//! A watched service as tower's load balancers want it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use discovery_core::{Endpoint, Instance, Roster, Step, Watch};
use futures_core::Stream;
use tower::discover::Change;

/// A [`Discover`](tower::discover::Discover) stream over a watched service, such as for [`Balance`](https://docs.rs/tower/0.5/tower/balance/).
///
/// The key is the instance's id. A changed address is a removal and an insertion, any other change of a record is nothing. Who is draining
/// while others serve, has the weight 0, or answers under none of the schemes is not there; see [`Roster`]. An outage of the registry
/// removes nobody. The stream never fails, and ends once the backend is closed.
///
/// Each poll begins with the newest set, however many there were since the last: a balancer that was idle does not see what came and went.
///
/// ```
/// use discovery_core::{Discovery, fixed};
/// use discovery_tower::Discovered;
/// use tower::{balance::p2c::Balance, load::Constant, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower::BoxError> {
/// let registry = fixed::connect(&"static:///10.0.0.5:9000,10.0.0.6:9000".parse()?)?;
/// let services = Discovered::new(registry.watch("orders"), &["http", "tcp"], |_instance, endpoint| {
///     let authority = endpoint.authority();
///     let call = service_fn(move |request: String| std::future::ready(Ok::<_, tower::BoxError>(format!("{authority}{request}"))));
///     Constant::new(call, 0)
/// });
/// let orders: Balance<_, String> = Balance::new(services);
/// # drop(orders);
/// # Ok(())
/// # }
/// ```
pub struct Discovered<F> {
    watch: Watch,
    roster: Roster,
    /// What is left to be yielded of the set that was seen last.
    steps: VecDeque<Step>,
    make: F,
}

impl<F> Discovered<F> {
    /// Follows a watch and makes a service for each instance and the endpoint that it is called at: its first with one of these schemes, in
    /// their order. What a `static:` list names without a scheme has `tcp`.
    pub fn new<S>(watch: Watch, schemes: &'static [&'static str], make: F) -> Self
    where
        F: FnMut(&Arc<Instance>, &Endpoint) -> S,
    {
        Self { watch, roster: Roster::new(schemes), steps: VecDeque::new(), make }
    }
}

/// The maker is called, never pinned.
impl<F> Unpin for Discovered<F> {}

impl<F, S> Stream for Discovered<F>
where
    F: FnMut(&Arc<Instance>, &Endpoint) -> S,
{
    type Item = Result<Change<Arc<str>, S>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match this.steps.pop_front() {
                Some(Step::Join(instance, endpoint)) => {
                    let service = (this.make)(&instance, &endpoint);
                    return Poll::Ready(Some(Ok(Change::Insert(instance.key().id, service))));
                }
                Some(Step::Leave(id)) => return Poll::Ready(Some(Ok(Change::Remove(id)))),
                None => match ready!(Pin::new(&mut this.watch).poll_next(cx)) {
                    Some(set) => this.steps = this.roster.update(&set).into(),
                    None => return Poll::Ready(None),
                },
            }
        }
    }
}

impl<F> fmt::Debug for Discovered<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovered").field("watch", &self.watch).finish_non_exhaustive()
    }
}
