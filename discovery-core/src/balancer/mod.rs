//! The balancer: a watch, a picker and the health of the members behind one atomic pointer.

mod builder;
mod ejection;
mod explain;
mod expression;
mod filter;
mod flight;
mod follow;
mod health;
mod latency;
mod member;
mod options;
mod outlier;
mod plan;
mod priority;
mod reader;
mod selection;
mod share;
mod slow_start;
mod tab;
mod tier;
mod version;
mod zone;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

pub use ejection::EjectionCause;
pub use explain::{Reason, Standing, Traffic};
pub use filter::{Comparison, Filter};
pub use flight::{Outcome, Pick};
pub use health::Condition;
pub use member::Member;
pub use options::{BalancerOptions, StalePolicy};
pub use outlier::{FailurePercentage, Outliers, SuccessRate};
pub use priority::Priorities;
pub use reader::Reader;
pub use slow_start::SlowStart;
pub use zone::{SPILL_FACTOR, Zone};

use crate::clock::Moment;
use crate::picker::{Context, PickerFactory};
use crate::{Error, ErrorKind, Freshness, Result, Watch};
use builder::Builder;
use follow::follow;
use health::{Bell, Objection};
use latency::Timing;
use selection::Selection;
use tab::Tabs;

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
    /// What readers have begun.
    tabs: Arc<Tabs>,
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
        let (bell, tabs) = (Bell::new(), Arc::<Tabs>::default());
        let mut builder = Builder::new(factory, bell.clone(), tabs.clone(), options.clone());
        let first = builder.build(&receiver.borrow(), None);
        let shared = Arc::new(Shared {
            number: AtomicU64::new(first.number),
            selection: ArcSwap::from_pointee(first),
            built: watch::Sender::new(0),
            bell,
            tabs,
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

    /// Says what an active health check found, and returns whether the instance is known.
    ///
    /// The next pick heeds it; unhealthy instances are picked only if too few are healthy (P4). What is said of an unknown id is not kept, or
    /// ids that never come would be kept for ever: say it again when the instance is there, as the next check does.
    pub fn set_health(&self, id: &str, condition: Condition) -> bool {
        let selection = self.inner.shared.selection.load();
        let Some(member) = selection.member(id) else {
            return false;
        };
        let unhealthy = match condition {
            Condition::Healthy => None,
            Condition::Unhealthy(why) => Some(why),
        };
        let raised = unhealthy.is_some();
        member.cell().notes().unhealthy = unhealthy;
        member.cell().flights().health.set(Objection::Unhealthy, raised);
        true
    }

    /// Why everybody gets the requests that it gets, sorted by id.
    pub fn explain(&self) -> Vec<Standing> {
        let shared = &self.inner.shared;
        let selection = shared.selection.load();
        explain::explain(&selection, &shared.options, shared.check_age(&selection).is_err())
    }

    /// Everybody in the set, picked or not, with their counters and the weights of their records, sorted by id.
    pub fn members(&self) -> Vec<Member> {
        self.inner.shared.selection.load().known.to_vec()
    }

    /// How many instances are in the set, picked or not.
    pub fn known(&self) -> usize {
        self.inner.shared.selection.load().known.len()
    }

    /// How many reachable instances get their share of the picks from now on. Those that only step in do not count.
    ///
    /// A change of health counts against it until a selection heeds it, so that it is never more than there are.
    pub fn candidates(&self) -> usize {
        let shared = &self.inner.shared;
        let selection = shared.selection.load();
        let unheeded = shared.bell.rings().wrapping_sub(selection.health);
        let sharing = selection.tiers().filter(|tier| tier.share > 0.0);
        let available = |tier: &tier::Tier| {
            let heed = tier.heed.and_unreachable();
            tier.members.iter().filter(|member| heed.admits(member.objections())).count()
        };
        let available = sharing.map(available).sum::<usize>();
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

    /// The refusal of a set that is older than the caller allows.
    #[inline]
    fn check_age(&self, selection: &Selection) -> Result<()> {
        match (self.options.stale, selection.freshness.since()) {
            (StalePolicy::RefuseAfter(limit), Some(since))
                if !selection.first.members.is_empty() && since.elapsed() > limit =>
            {
                Err(selection.too_stale())
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn pick(&self, selection: &Selection, context: &Context<'_>, now: Moment, timing: Timing) -> Result<Pick> {
        self.check_age(selection)?;
        let member = match timing {
            Timing::Off => selection.select(context),
            _ => selection.select(&context.at(now)),
        };
        match member {
            Some(member) => Ok(member.begin(timing)),
            None => Err(selection.nobody()),
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

#[cfg(all(test, discovery_loom))]
mod interleavings;

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;
