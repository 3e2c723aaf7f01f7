//! The balancer: a watch, a picker and the health of the members behind one atomic pointer.

mod flight;
mod health;
mod latency;
mod member;
mod options;
mod reader;
mod selection;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

pub use flight::{Outcome, Pick};
pub use member::Member;
pub use options::{BalancerOptions, StalePolicy};
pub use reader::Reader;

use crate::clock::Moment;
use crate::picker::{Context, PickerFactory};
use crate::snapshot::Snapshot;
use crate::{Error, ErrorKind, Freshness, Result, Watch};
use health::{Bell, Objection};
use latency::Timing;
use selection::{Builder, Selection};

/// Selections that are built faster than this are built at once, however many come.
const FREE_BUILD: Duration = Duration::from_micros(500);

/// Picks an instance for each request. Clones share everything.
///
/// It follows its watch in a task of its own, whether or not requests flow, and ends it with the last clone.
#[derive(Clone)]
pub struct Balancer {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    /// Written by the task alone; readers never block it nor each other.
    selection: ArcSwap<Selection>,
    /// The number of the selection, stored after it.
    number: AtomicU64,
    /// Counts selections, to wake those that wait for an instance.
    built: watch::Sender<u64>,
    /// Rings when somebody's health changes, to wake the task.
    bell: Bell,
    /// Whether no other set will come. Set before the last selection is announced, and read by those who were woken by it.
    closed: AtomicBool,
    options: BalancerOptions,
}

impl Balancer {
    /// Balances over a watched service with default options. Needs a running Tokio runtime.
    pub fn new(watch: Watch, factory: impl PickerFactory) -> Self {
        Self::with_options(watch, factory, BalancerOptions::default())
    }

    /// Balances over a watched service.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, as everything that starts tasks.
    pub fn with_options(watch: Watch, factory: impl PickerFactory, options: BalancerOptions) -> Self {
        let receiver = watch.receiver();
        let bell = Bell::new();
        let builder = Builder { factory, bell: bell.clone(), clock: options.clock.clone() };
        let first = builder.build(&receiver.borrow(), None);
        let shared = Arc::new(Shared {
            number: AtomicU64::new(first.number),
            selection: ArcSwap::from_pointee(first),
            built: watch::Sender::new(0),
            bell,
            closed: AtomicBool::new(false),
            options,
        });
        let task = tokio::spawn(follow(shared.clone(), watch, receiver, builder)).abort_handle();
        Self { inner: Arc::new(Inner { shared, task }) }
    }

    /// A balancer for one task, which picks faster.
    pub fn reader(&self) -> Reader {
        Reader::new(self.clone())
    }

    /// Picks an instance now.
    ///
    /// # Errors
    /// `NoInstance`, saying which service, how many are known, how stale the set is, and the store's last error.
    pub fn pick(&self, context: &Context<'_>) -> Result<Pick> {
        let shared = &self.inner.shared;
        let selection = shared.selection.load();
        let at = selection.is_timed.then(|| shared.options.clock.now());
        shared.pick(&selection, context, at.unwrap_or_default(), at.map_or(Timing::Off, Timing::Since))
    }

    /// Picks an instance, waiting for one up to `timeout`.
    ///
    /// # Errors
    /// As [`pick`](Self::pick), once the time is over; `Closed` if the backend was closed, since then none will come.
    ///
    /// # Cancel safety
    /// Safe to drop at any time.
    pub async fn pick_within(&self, context: &Context<'_>, timeout: Duration) -> Result<Pick> {
        // Subscribed before the first try, so that no selection between the two is missed.
        let mut built = self.inner.shared.built.subscribe();
        let end = Instant::now().checked_add(timeout);
        loop {
            let error = match self.pick(context) {
                Ok(pick) => return Ok(pick),
                Err(error) if error.kind() != ErrorKind::NoInstance || timeout.is_zero() => {
                    return Err(error);
                }
                Err(error) if self.inner.shared.closed.load(Ordering::Acquire) => {
                    return Err(Error::closed("pick", error.subject()));
                }
                Err(error) => error,
            };
            let changed = async {
                match end {
                    Some(end) => timeout_at(end, built.changed()).await.ok(),
                    None => Some(built.changed().await),
                }
            };
            match changed.await {
                // The sender lives as long as this balancer.
                Some(_) => {}
                None => {
                    let waited = format!("{}; waited {timeout:?}", error.message());
                    return Err(Error::new(ErrorKind::NoInstance, "pick", error.subject(), waited));
                }
            }
        }
    }

    /// Says whether an instance can be reached, as whoever keeps the connections knows. Unknown ids are ignored.
    ///
    /// The next pick heeds it; an instance that is unreachable is picked only if all are (P4).
    pub fn set_available(&self, id: &str, available: bool) {
        if let Some(member) = self.inner.shared.selection.load().member(id) {
            member.cell().flights().health.set(Objection::Unreachable, !available);
        }
    }

    /// Everybody in the set, picked or not, with their counters, sorted by id.
    pub fn members(&self) -> Vec<Member> {
        self.inner.shared.selection.load().known.to_vec()
    }

    /// How many reachable instances get their share of the picks from now on.
    ///
    /// A change of reachability counts against it until a selection heeds it, so that it is never more than there are.
    pub fn candidates(&self) -> usize {
        let shared = &self.inner.shared;
        let selection = shared.selection.load();
        let unheeded = shared.bell.rings().wrapping_sub(selection.health);
        let available = selection.members.iter().filter(|member| member.is_available()).count();
        available.saturating_sub(usize::try_from(unheeded).unwrap_or(usize::MAX))
    }

    /// Tells when somebody else may be picked than before, for those who wait with a condition of their own.
    pub fn selections(&self) -> Selections {
        Selections(self.inner.shared.built.subscribe())
    }

    /// How far the set that is picked from can be trusted.
    pub fn freshness(&self) -> Freshness {
        self.inner.shared.selection.load().freshness.clone()
    }
}

/// Tells when somebody else may be picked than before.
#[derive(Debug, Clone)]
pub struct Selections(watch::Receiver<u64>);

impl Selections {
    /// Waits for a selection that was built after the last call, or after this value was made.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody can be picked through a balancer that is gone.
            std::future::pending().await
        }
    }
}

impl Shared {
    #[inline]
    fn is_older(&self, selection: &Selection) -> bool {
        self.number.load(Ordering::Acquire) != selection.number
    }

    #[inline]
    fn pick(&self, selection: &Selection, context: &Context<'_>, now: Moment, timing: Timing) -> Result<Pick> {
        if let (StalePolicy::RefuseAfter(limit), Some(since)) = (self.options.stale, selection.freshness.since())
            && !selection.members.is_empty()
            && since.elapsed() > limit
        {
            return Err(selection.too_stale());
        }
        let members = &*selection.members;
        let picked = match timing {
            Timing::Off => selection.picker.pick(members, context),
            _ => selection.picker.pick(members, &context.at(now)),
        };
        let Some(member) = picked.and_then(|index| members.get(index)) else {
            return Err(selection.nobody());
        };
        if member.is_available() {
            return Ok(member.begin(timing));
        }
        // It may have become unavailable since the selection was built; its neighbours stand in until the next one.
        let (before, from) = members.split_at(picked.unwrap_or(0));
        let stand_in = from.iter().chain(before).find(|member| member.is_available());
        Ok(stand_in.unwrap_or(member).begin(timing))
    }
}

async fn follow(
    shared: Arc<Shared>,
    watch: Watch,
    mut receiver: watch::Receiver<Arc<Snapshot>>,
    builder: Builder<impl PickerFactory>,
) {
    let mut bell = shared.bell.listen();
    receiver.mark_changed();
    let mut watch = Some(watch);
    loop {
        tokio::select! {
            changed = receiver.changed(), if watch.is_some() => if changed.is_err() {
                // The backend was closed: the last set stays usable, and health still counts.
                watch = None;
                shared.closed.store(true, Ordering::Release);
            },
            // The sender lives in `shared`, so this cannot fail.
            _ = bell.changed() => {}
        }
        bell.mark_unchanged();
        let begun = std::time::Instant::now();
        let snapshot = receiver.borrow_and_update().clone();
        let next = builder.build(&snapshot, Some(&shared.selection.load()));
        let number = next.number;
        shared.selection.store(Arc::new(next));
        shared.number.store(number, Ordering::Release);
        shared.built.send_modify(|count| *count = count.wrapping_add(1));
        // A selection costs what the set is large. Changes that come faster than that are built together, so that building takes a
        // tenth of a core at most (L3); meanwhile a pick still heeds who is unavailable.
        let spent = begun.elapsed();
        if spent > FREE_BUILD {
            tokio::time::sleep(spent * 9).await;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Balancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let selection = self.inner.shared.selection.load();
        f.debug_struct("Balancer")
            .field("service", &selection.service)
            .field("known", &selection.known.len())
            .field("freshness", &selection.freshness)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::Member;
    use super::flight::Cell;
    use super::health::{Bell, Health};
    use crate::Instance;
    use crate::clock::Clock;
    use std::sync::Arc;

    pub(crate) fn member(id: &str, weight: u32) -> Member {
        timed_member(id, weight, &Clock::default())
    }

    pub(crate) fn timed_member(id: &str, weight: u32, clock: &Clock) -> Member {
        of(Instance::builder("s").id(id).endpoint("grpc://h:1").weight(weight).build().unwrap(), clock)
    }

    pub(crate) fn of(instance: Instance, clock: &Clock) -> Member {
        let (weight, instance) = (instance.weight(), Arc::new(instance));
        let cell = Cell::new(instance.clone(), Health::new(5, Bell::new()), clock.clone());
        Member::new(instance, weight, Arc::new(cell))
    }

    /// Members with these weights, with ids in their order.
    pub(crate) fn members(weights: &[u32]) -> Vec<Member> {
        weights.iter().enumerate().map(|(n, weight)| member(&format!("{n:05}"), *weight)).collect()
    }
}

#[cfg(test)]
mod tests;
