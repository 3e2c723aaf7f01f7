//! The balancer's task: the one place where selections are built.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::builder::Builder;
use crate::Watch;
use crate::picker::PickerFactory;
use crate::snapshot::Snapshot;

/// Selections that are built faster than this are built at once, however many come.
const FREE_BUILD: Duration = Duration::from_micros(500);

/// A picker that panics would panic again at once.
const AFTER_PANIC: Duration = Duration::from_secs(1);

pub(super) async fn follow(
    shared: Arc<Shared>,
    watch: Watch,
    mut receiver: watch::Receiver<Arc<Snapshot>>,
    mut builder: Builder<impl PickerFactory>,
) {
    let mut bell = shared.bell.listen();
    receiver.mark_changed();
    let mut watch = Some(watch);
    let mut retired = Vec::new();
    loop {
        let wake = builder.wake();
        let by_time = tokio::select! {
            changed = receiver.changed(), if watch.is_some() => {
                if changed.is_err() {
                    // The backend was closed: the last set stays usable, and health still counts.
                    watch = None;
                    shared.closed.store(true, Ordering::Release);
                }
                false
            }
            // The sender lives in `shared`, so this cannot fail.
            _ = bell.changed() => false,
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => true,
        };
        let begun = std::time::Instant::now();
        let due = builder.attend(&shared.selection.load().known, Instant::now());
        // What it did itself rang too, and is heeded by the selection that comes.
        let rang = bell.has_changed().unwrap_or(false);
        bell.mark_unchanged();
        if by_time && !due && !rang {
            continue;
        }
        let snapshot = receiver.borrow_and_update().clone();
        let before = shared.selection.load_full();
        // Pickers may be the user's, and one that panics must not end this task: later sets would never be seen.
        let built = catch_unwind(AssertUnwindSafe(|| builder.build(&snapshot, Some(&before))));
        let Ok(next) = built else {
            let service = snapshot.service();
            tracing::error!(service, "building a picker panicked; the set from before stays until the next change");
            tokio::time::sleep(AFTER_PANIC).await;
            continue;
        };
        let next = Arc::new(next);
        shared.tabs.provide(&next);
        let number = next.number;
        shared.selection.store(next);
        shared.number.store(number, Ordering::Release);
        // Freed here, once the last reader has gone on, and not within its pick.
        retired.push(before);
        retired.retain(|selection| Arc::strong_count(selection) > 1);
        shared.built.send_modify(|count| *count = count.wrapping_add(1));
        // A selection costs what the set is large. Changes that come faster than that are built together, so that building takes a
        // tenth of a core at most (L3); meanwhile a pick still heeds who is unavailable.
        let spent = begun.elapsed();
        if spent > FREE_BUILD {
            tokio::time::sleep(spent * 9).await;
        }
    }
}
