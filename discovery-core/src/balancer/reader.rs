//! A balancer for one task: it keeps the selection that it saw last.

use std::sync::Arc;
use std::time::Duration;

use super::latency::Timing;
use super::selection::Selection;
use super::{Balancer, Pick};
use crate::Result;
use crate::clock::Moment;
use crate::picker::Context;

/// A balancer with a selection of its own at hand, for callers who can give `&mut`. A pick looks whether there is a newer selection, which
/// costs one read of a number that seldom changes.
///
/// Where the picker goes by time and picks come faster than one in 50 µs, one request in four is timed: reading a clock twice would cost
/// more than everything else, and a quarter of so many says as much as all.
#[derive(Debug, Clone)]
pub struct Reader {
    balancer: Balancer,
    selection: Arc<Selection>,
    /// When the clock was read last, and how many picks go by that.
    read: Moment,
    skip: u8,
}

/// Picks that come faster than this are many.
const MANY: Duration = Duration::from_micros(50);
/// How many of many are not timed, for one that is.
const SKIPPED: u8 = 3;

impl Reader {
    pub(super) fn new(balancer: Balancer) -> Self {
        let selection = balancer.inner.shared.selection.load_full();
        Self { balancer, selection, read: Moment::default(), skip: 0 }
    }

    /// The balancer that it reads.
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// Picks an instance now.
    ///
    /// # Errors
    /// As [`Balancer::pick`].
    #[inline]
    pub fn pick(&mut self, context: &Context<'_>) -> Result<Pick> {
        let shared = &self.balancer.inner.shared;
        if shared.is_older(&self.selection) {
            self.selection = shared.selection.load_full();
        }
        let timing = match self.selection.is_timed {
            false => Timing::Off,
            true if self.skip > 0 => {
                self.skip -= 1;
                Timing::Skipped
            }
            true => {
                let now = shared.options.clock.now();
                self.skip = if now.since(self.read) < MANY { SKIPPED } else { 0 };
                self.read = now;
                Timing::Since(now)
            }
        };
        shared.pick(&self.selection, context, self.read, timing)
    }
}
