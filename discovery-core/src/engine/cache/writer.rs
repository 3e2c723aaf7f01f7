//! The task that writes: one file at a time, seldom enough that nobody notices.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::{Job, Shared};
use crate::store::Scope;
use crate::{Error, ErrorKind, Result};

/// The least time between two writes of one set, however fast it changes. A kill loses what changed in it.
const PACE: Duration = Duration::from_secs(1);
/// After a write the task rests for so many times what it took, so that writing takes a tenth of a core at most.
const REST: u32 = 9;
/// How soon a failed write is tried again, unless the set changes.
const RETRY: Duration = Duration::from_secs(30);
/// The directory is cleared four times in the age of its files, within these bounds.
const SWEEPS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(60 * 60));

/// Writes what is pending until the handle is gone, and then what is left.
pub(super) async fn run(shared: Arc<Shared>, mut woken: watch::Receiver<()>) {
    let (mut failed, mut retry_at) = (HashMap::new(), None);
    let between_sweeps = (shared.folder.max_age() / 4).clamp(SWEEPS.0, SWEEPS.1);
    let mut sweep_at = Instant::now();
    let mut open = true;
    while open {
        if sweep_at <= Instant::now() {
            sweep(&shared).await;
            sweep_at = Instant::now() + between_sweeps;
        }
        let until = retry_at.map_or(sweep_at, |at| sweep_at.min(at));
        open = match timeout(until.saturating_duration_since(Instant::now()), woken.changed()).await {
            Ok(woken) => woken.is_ok(),
            Err(_) => true,
        };
        let mut jobs = std::mem::take(&mut *shared.pending());
        failed.retain(|scope, _| !jobs.contains_key(scope));
        if retry_at.is_some_and(|at| at <= Instant::now()) {
            jobs.extend(failed.drain());
        }
        let begun = Instant::now();
        for (scope, job) in jobs {
            let (result, took) = write(&shared, &scope, &job).await;
            shared.wrote(&result);
            if let Err(error) = result {
                if shared.log.permits() {
                    tracing::warn!(%error, "a set cannot be kept on the disk, and maybe others; a start without the store would lack it");
                }
                failed.insert(scope, job);
            }
            open = open && !closed(&mut woken, took * REST).await;
        }
        retry_at = if failed.is_empty() { None } else { retry_at.filter(|at| *at > begun).or(Some(begun + RETRY)) };
        open = open && !closed(&mut woken, PACE.saturating_sub(begun.elapsed())).await;
    }
    let left = std::mem::take(&mut *shared.pending());
    for (scope, job) in left {
        let (result, _) = write(&shared, &scope, &job).await;
        shared.wrote(&result);
    }
}

/// Rests, and answers whether the handle was dropped meanwhile. News waits until then.
async fn closed(woken: &mut watch::Receiver<()>, rest: Duration) -> bool {
    tokio::select! {
        biased;
        () = sleep(rest) => false,
        () = dropped(woken.clone()) => true,
    }
}

async fn dropped(mut woken: watch::Receiver<()>) {
    while woken.changed().await.is_ok() {}
}

async fn write(shared: &Arc<Shared>, scope: &Scope, job: &Job) -> (Result<()>, Duration) {
    let (writer, label, work) = (shared.clone(), scope.clone(), job.clone());
    let written = spawn_blocking(move || {
        let begun = std::time::Instant::now();
        (writer.write(&label, &work), begun.elapsed())
    });
    written.await.unwrap_or_else(|error| {
        let subject = format!("{scope:?} to {}", shared.folder.path().display());
        (Err(Error::new(ErrorKind::Internal, "write", subject, error.to_string())), Duration::ZERO)
    })
}

async fn sweep(shared: &Arc<Shared>) {
    let sweeper = shared.clone();
    match spawn_blocking(move || sweeper.folder.sweep()).await {
        Ok(Ok(0)) => {}
        Ok(Ok(removed)) => tracing::debug!(removed, "sets that are too old were removed from the disk"),
        Ok(Err(error)) if shared.log.permits() => {
            tracing::warn!(%error, "the sets on the disk cannot be looked through")
        }
        // Either it was said already, or the runtime ends.
        Ok(Err(_)) | Err(_) => {}
    }
}
