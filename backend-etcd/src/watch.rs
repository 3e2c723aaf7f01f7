//! Following a scope: the set at one revision, and every change from the next one on.

use discovery_core::store::{RawChange, RawRecord, Sink};
use discovery_core::{Error, ErrorKind};
use etcd_client::{EventType, WatchResponse};
use tokio::time::timeout;

use crate::connection::Live;
use crate::error::classify;
use crate::load::{load, range_end, silent, text};

/// Delivers until continuity is lost, and says why.
///
/// The revision to resume from is that of the set that was read, never that of the answer that confirms the watch: an event of the
/// latter can still come after it.
pub(crate) async fn follow(live: &Live, prefix: &str, values: bool, sink: &dyn Sink) -> Error {
    let from = match load(&live.client, prefix, values, live.patience, sink).await {
        Ok(revision) => revision,
        Err(error) => return error,
    };
    sink.full(from.unsigned_abs(), Vec::new());
    let opened = live.streams.watch(prefix.as_bytes().to_vec(), range_end(prefix), from + 1);
    let mut subscription = match timeout(live.patience, opened).await {
        Ok(Ok(subscription)) => subscription,
        Ok(Err(error)) => return classify(error, "watch", prefix),
        Err(_) => return silent(prefix, live.patience),
    };
    while let Some(answer) = subscription.next().await {
        if answer.canceled() {
            return cancelled(&answer, prefix);
        }
        let changes: Vec<_> = answer.events().iter().filter_map(change).collect();
        if let Some(newest) = changes.iter().map(RawChange::revision).max() {
            sink.changes(newest, changes);
        }
    }
    Error::new(ErrorKind::Unavailable, "watch", prefix, "the stream of notifications broke")
}

fn change(event: &etcd_client::Event) -> Option<RawChange> {
    let record = event.kv()?;
    let (key, at) = (text(record.key().to_vec()), record.mod_revision().unsigned_abs());
    Some(match event.event_type() {
        EventType::Put => RawChange::Put(RawRecord { key, revision: at, value: record.value().to_vec() }),
        EventType::Delete => RawChange::Delete(key, at),
    })
}

/// A cancelled watch leaves the stream open and silent, so its answer is the only sign.
fn cancelled(answer: &WatchResponse, prefix: &str) -> Error {
    let reason = answer.cancel_reason();
    if answer.compact_revision() > 0 || reason.contains("compacted") || reason.contains("future revision") {
        let at = answer.compact_revision();
        return Error::new(ErrorKind::Gap, "watch", prefix, format!("the history before revision {at} was compacted"));
    }
    let kind = if reason.contains("permission denied") {
        ErrorKind::PermissionDenied
    } else if reason.contains("auth") {
        ErrorKind::Unauthenticated
    } else {
        ErrorKind::Unavailable
    };
    Error::new(kind, "watch", prefix, format!("the server cancelled the watch: {reason:?}"))
}
