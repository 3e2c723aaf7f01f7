//! Wakes the calls that wait for an instance.

use tokio::sync::watch;

/// Counts whatever can change a waiting call's mind: a connection, a failed dial. Clones are the same counter.
#[derive(Debug, Clone, Default)]
pub(super) struct News(watch::Sender<u64>);

impl News {
    pub(super) fn tell(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
