//! What a feed keeps of its scope: turns raw records into the view that watchers get.

use std::sync::Arc;

use tokio::time::Instant;

use super::cache::Kept;
use crate::snapshot::Freshness;
use crate::store::{RawChange, RawRecord};

/// The state behind one feed.
///
/// Methods that take news answer whether watchers should hear of it.
pub(super) trait Model: Send + 'static {
    type View: Kept;

    /// Takes what the disk remembers from an earlier process. The first full set is compared with it, as across any gap.
    fn remember(&mut self, remembered: Self::View);

    /// Shows what was remembered, as long as no full set came.
    fn show_remembered(&mut self);

    /// Takes some records of the next full set, which are not seen before it.
    fn part(&mut self, records: Vec<RawRecord>);

    /// Forgets the records of a full set that was never read to its end.
    fn forget_parts(&mut self);

    /// Takes its parts, with what changed since, for the full set; what differs from before is compared, not merged (W2). Across a gap the
    /// brake may hold what vanished (W9).
    fn full(&mut self, revision: u64, since: Vec<RawChange>, gap: bool) -> bool;

    /// Takes notifications.
    fn changes(&mut self, revision: u64, changes: Vec<RawChange>) -> bool;

    /// When the brake has to let go, if it holds something.
    fn release_at(&self) -> Option<Instant>;

    /// Lets go of what the brake holds.
    fn release(&mut self);

    /// How many records notifications have led to, for reconciliation.
    fn count(&self) -> usize;

    /// Whether one of these changes, which the store has, is not known.
    fn lacks(&self, changed: &[(String, u64)]) -> bool;

    /// The view for watchers.
    fn view(&self, freshness: &Freshness) -> Arc<Self::View>;
}
