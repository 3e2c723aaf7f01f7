//! Picking: which instance takes this request.
//!
//! A [`Picker`] is one synchronous method over the members; a [`PickerFactory`] builds one for each membership. Anyone can write one:
//! the balancer shows a picker only members that may be picked, so weights of zero, draining and unreachable instances are its
//! concern, not the picker's.
//!
//! - **P1** A pick waits for no lock, allocates nothing, awaits nothing and never panics.
//! - **P2** Weight 0 is drained: no picks while any other instance has weight. All at zero: nobody, with an error that says so.
//! - **P3** Statistics belong to the instance's id and survive every update of the set.
//! - **P4** With every instance unhealthy or ejected the balancer falls back to all of them (panic mode) instead of failing.
//! - **P5** Round robin is exact: counts differ by at most one, also across updates; weighted is smooth: less than one pick from
//!   the ideal at every prefix, and after a change of members or weights less than two over any stretch of picks.
//! - **P6** Two processes, given the same members in any order, hash a key to the same instance; a restart on the same id moves no key; a
//!   leaver moves only its own keys.
//! - **P7** An instance that joins takes its share gradually if slow start is on, in every picker, by the watcher's own clock.
//! - **P8** The outcome of a request is reported once, at the end of its response (for gRPC: the trailers), or as cancelled when dropped.

mod columns;
mod consistent;
mod ewma;
mod least;
mod pair;
mod power_of_two;
mod random;
mod ring;
mod round_robin;
mod schedule;
mod sticky;
mod stream;
mod subset;
#[cfg(test)]
pub(crate) mod testing;
mod weighted;
mod weighted_random;

pub use consistent::{BoundedLoad, ConsistentHash};
pub use ewma::PeakEwma;
pub use least::LeastRequests;
pub use power_of_two::PowerOfTwo;
pub use random::Random;
pub use ring::{DubboRing, GoZeroRing, Ketama};
pub use round_robin::RoundRobin;
pub use sticky::Sticky;
pub use subset::Subset;
pub use weighted::WeightedRoundRobin;
pub use weighted_random::WeightedRandom;

use std::fmt;

pub use crate::balancer::Member;
use crate::clock::Moment;

/// The headers of a request, however the caller's protocol keeps them.
pub trait Headers: Sync {
    /// The value of a header, by its name in lower case; of several the first.
    fn header(&self, name: &str) -> Option<&[u8]>;
}

/// What a picker may know about the request. `Debug` does not show the headers, which may carry credentials.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct Context<'a> {
    /// The method or path that is called.
    pub method: Option<&'a str>,
    /// What requests of one session have in common, for pickers that keep them together.
    pub key: Option<&'a [u8]>,
    headers: Option<&'a dyn Headers>,
    now: Moment,
}

impl<'a> Context<'a> {
    /// Sets the method or path.
    #[must_use]
    pub fn with_method(mut self, method: &'a str) -> Self {
        self.method = Some(method);
        self
    }

    /// When the pick is made, for pickers that [go by time](Picker::is_timed).
    pub fn now(&self) -> Moment {
        self.now
    }

    #[inline]
    pub(crate) fn at(mut self, now: Moment) -> Self {
        self.now = now;
        self
    }

    /// Sets the headers.
    #[must_use]
    pub fn with_headers(mut self, headers: &'a dyn Headers) -> Self {
        self.headers = Some(headers);
        self
    }

    /// The value of a header, by its name in lower case; `None` also if the caller gives no headers.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers?.header(name)
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(mut self, key: &'a [u8]) -> Self {
        self.key = Some(key);
        self
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("method", &self.method).field("key", &self.key).finish_non_exhaustive()
    }
}

/// How often a picker is asked again for somebody who may take the request.
const TRIES: u32 = 16;

/// Picks one of the members. Called on every request, from many threads at once.
pub trait Picker: Send + Sync + 'static {
    /// The index of the member that takes the request; `None` if there is none. An index out of bounds counts as none.
    fn pick(&self, members: &[Member], context: &Context<'_>) -> Option<usize>;

    /// Whether it may ever pick the member at this index. One that narrows the members says so here, so that it can be
    /// [explained](crate::Balancer::explain).
    fn may_pick(&self, index: usize) -> bool {
        let _ = index;
        true
    }

    /// Whether it goes by time: only then [`Context::now`] and [`Member::latency`] are kept, since reading a clock costs more than a pick.
    fn is_timed(&self) -> bool {
        false
    }

    /// Whether a smaller [`Member::weight`] is all that a newcomer needs to [start slowly](crate::SlowStart) (P7): members get picks in
    /// proportion to it at any load, and if one weight changes, keys move only to or from its member.
    ///
    /// A picker that says no sees the weights of the records, and the balancer asks it through [`pick_where`](Self::pick_where), so that a
    /// newcomer's share grows gradually all the same.
    fn starts_by_weight(&self) -> bool {
        true
    }

    /// As [`pick`](Self::pick), but only somebody who is accepted; if nobody is, anybody. `accepts` may answer by chance, but for a request with
    /// a key it says the same of a member whenever it is asked, and in every process.
    ///
    /// By default it picks again, a bounded number of times, and then goes on to the next by index. Whoever was picked first is not asked about
    /// again, since a picker that goes by load or key picks the same until it is accepted. A picker that knows who comes next for a key, or
    /// remembers what it picked, does better.
    fn pick_where(&self, members: &[Member], context: &Context<'_>, accepts: &dyn Fn(usize) -> bool) -> Option<usize> {
        let first = self.pick(members, context)?;
        if accepts(first) {
            return Some(first);
        }
        for _ in 0..TRIES {
            let next = self.pick(members, context)?;
            if next != first && accepts(next) {
                return Some(next);
            }
        }
        (first + 1..members.len()).chain(0..first).find(|at| accepts(*at)).or(Some(first))
    }
}

/// Builds a picker for a membership. One factory serves one balancer.
pub trait PickerFactory: Send + Sync + 'static {
    /// Builds a picker for these members, which are sorted by id. It is called again whenever they change.
    fn build(&self, members: &[Member]) -> Box<dyn Picker>;

    /// A factory of the same kind for another group of the balancer's members, such as another zone; `None`, the default, if this one keeps
    /// nothing from one membership to the next and so serves them all.
    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        None
    }
}

impl PickerFactory for Box<dyn PickerFactory> {
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        (**self).build(members)
    }

    fn another(&self) -> Option<Box<dyn PickerFactory>> {
        (**self).another()
    }
}

/// A picker without state for a membership is its own factory.
impl<F, P> PickerFactory for F
where
    F: Fn(&[Member]) -> P + Send + Sync + 'static,
    P: Picker,
{
    fn build(&self, members: &[Member]) -> Box<dyn Picker> {
        Box::new(self(members))
    }
}
