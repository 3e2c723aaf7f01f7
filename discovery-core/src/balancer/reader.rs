//! A balancer for one task: it keeps the selection that it saw last.

use std::sync::Arc;
use std::time::Duration;

use super::latency::Timing;
use super::tab::Tab;
use super::{Balancer, Pick};
use crate::Result;
use crate::clock::Moment;
use crate::picker::Context;

/// A balancer with a selection of its own at hand, for callers who can give `&mut`. A pick looks whether there is a newer selection, which
/// costs one read of a number that seldom changes.
///
/// Between two picks it keeps the selection that it saw last, with all of its members and tables, so drop one that idles for long.
///
/// Where the picker goes by time and picks come faster than one in 50 µs, one request in four is timed: reading a clock twice would cost
/// more than everything else, and a quarter of so many says as much as all.
#[derive(Debug)]
pub struct Reader {
    balancer: Balancer,
    tab: Arc<Tab>,
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
        let shared = &balancer.inner.shared;
        let tab = shared.tabs.open(|| shared.selection.load_full());
        Self { balancer, tab, read: Moment::default(), skip: 0 }
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
        if shared.is_older(self.tab.selection()) && !shared.tabs.renew(&mut self.tab, shared.selection.load_full()) {
            return self.balancer.pick(context);
        }
        let selection = self.tab.selection();
        let timing = match selection.is_timed {
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
        if !selection.is_plain {
            return shared.pick(selection, context, self.read, timing);
        }
        shared.check_age(selection)?;
        let first = &selection.first;
        let place = match timing {
            Timing::Off => first.picker.pick(&first.members, context),
            _ => first.picker.pick(&first.members, &context.at(self.read)),
        };
        match place.and_then(|place| Some((place, first.members.get(place)?))) {
            Some((place, member)) if first.admits(member) => {
                let pick = member.begin_counted(timing);
                self.tab.count(place);
                Ok(pick)
            }
            Some((place, member)) => Ok(selection.at(first, place).unwrap_or(member).begin(timing)),
            None => Err(selection.nobody()),
        }
    }
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        self.balancer.reader()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.balancer.inner.shared.tabs.close(&self.tab);
    }
}
