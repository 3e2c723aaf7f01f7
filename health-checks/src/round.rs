//! The checks of one instance, one after the other.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::SystemTime;

use discovery_core::{Endpoint, ErrorKind, Result};
use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};

use crate::board::Board;
use crate::check::failure;
use crate::pace::Pace;
use crate::{Check, CheckerOptions, LastCheck};

/// Whom to check, and under which number the board knows it.
pub(crate) struct Subject {
    pub(crate) id: Arc<str>,
    pub(crate) number: u64,
    pub(crate) endpoint: Endpoint,
}

/// Checks until the board knows the subject no more; the board's entry ends it sooner.
pub(crate) async fn go_round(subject: Subject, check: Arc<dyn Check>, options: CheckerOptions, board: Arc<Board>) {
    let mut pace = Pace::new(options.interval, options.jitter_percent, fastrand::Rng::new());
    sleep(pace.first()).await;
    loop {
        let slot = options.slots.take().await;
        let begun = Instant::now();
        let outcome = ask(&*check, &subject.endpoint, &options).await;
        drop(slot);
        let last = LastCheck { at: SystemTime::now(), took: begun.elapsed(), outcome };
        if !board.hear(&subject.id, subject.number, last, options.thresholds) {
            return;
        }
        sleep(pace.next()).await;
    }
}

async fn ask(check: &dyn Check, endpoint: &Endpoint, options: &CheckerOptions) -> Result<()> {
    // Anybody's check runs here, and a panic must not end the checks in silence. It is not called again with what it left broken: only
    // `&self` outlives the call.
    let asked = AssertUnwindSafe(check.check(endpoint)).catch_unwind();
    match timeout(options.timeout, asked).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(failure(endpoint, ErrorKind::Internal, "the check panicked")),
        Err(_) => {
            let why = format!("no answer within {:?}", options.timeout);
            Err(failure(endpoint, ErrorKind::DeadlineExceeded, why))
        }
    }
}
