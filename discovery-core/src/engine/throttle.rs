//! At most one line in five seconds from one place (L1).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const QUIET: Duration = Duration::from_secs(5);

/// Says when a line may be written again.
#[derive(Debug)]
pub(super) struct Throttle {
    last: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(super) fn new() -> Self {
        Self { last: Mutex::new(None) }
    }

    /// Whether a line may be written now; if so it counts as written.
    pub(super) fn permits(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let permits = last.is_none_or(|at| now.duration_since(at) >= QUIET);
        if permits {
            *last = Some(now);
        }
        permits
    }
}
