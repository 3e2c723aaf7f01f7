//! Which instances could not be reached, and when each is tried again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use discovery_core::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::FailedAttempt;

/// The longest wait before an instance that cannot be reached is tried again. Longer would leave one that is back without requests.
const LONGEST: Duration = Duration::from_secs(10);
/// How long one attempt keeps the others away from an instance. It must end: an attempt that is given up says nothing, and one that gets a
/// connection says nothing before its answer. Shorter, a host that swallows connections would be dialled by many.
const PROBE: Duration = Duration::from_secs(1);

type Tell = dyn Fn(&str, bool) + Send + Sync;

/// The instances that could not be reached. Each is left alone for a moment that grows, and then tried by one request at a time.
pub(crate) struct Absences {
    absent: Mutex<HashMap<Arc<str>, Absence>>,
    /// How many there are, so that nobody takes the lock while all is well. A hint: it publishes nothing, so relaxed ordering suffices.
    count: AtomicUsize,
    /// Counts what can change the mind of a request that waits, and wakes the service's task.
    news: watch::Sender<u64>,
    /// Tells the balancer whether an instance can be reached. It is called under the lock, so that the last word is always the latest.
    tell: Box<Tell>,
}

struct Absence {
    until: Instant,
    /// Whether somebody was told that the time is over.
    told: bool,
    /// Whether a request was let through after that.
    tried: bool,
    backoff: Backoff,
    last: FailedAttempt,
    since: Instant,
}

impl Absences {
    pub(crate) fn new(tell: impl Fn(&str, bool) + Send + Sync + 'static) -> Self {
        Self { absent: Mutex::default(), count: AtomicUsize::new(0), news: watch::Sender::new(0), tell: Box::new(tell) }
    }

    /// Whether a request may go there now. If it may, and the instance could not be reached before, no other may for a while.
    pub(crate) fn admits(&self, id: &str) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let now = Instant::now();
        let mut absent = self.lock();
        match absent.get_mut(id) {
            Some(absence) if now < absence.until => {
                // Told again, as the balancer may not have known the id when it was said first.
                (self.tell)(id, false);
                false
            }
            Some(absence) => {
                (absence.until, absence.told, absence.tried) = (now + PROBE, false, true);
                true
            }
            None => true,
        }
    }

    /// Hears that no connection was made.
    pub(crate) fn refused(&self, attempt: FailedAttempt) {
        let mut absent = self.lock();
        let (id, now) = (attempt.id.clone(), Instant::now());
        let absence = absent.entry(attempt.id.clone()).or_insert_with(|| Absence {
            until: now,
            told: false,
            tried: true,
            backoff: Backoff::new(LONGEST),
            last: attempt.clone(),
            since: now,
        });
        // Of several that were refused at once, the first one decides on the wait.
        if absence.tried {
            (absence.until, absence.told, absence.tried) = (now + absence.backoff.next(true), false, false);
        }
        (absence.last, absence.since) = (attempt, now);
        self.count.store(absent.len(), Ordering::Relaxed);
        (self.tell)(&id, false);
        drop(absent);
        self.wake();
    }

    /// Hears of an attempt whose time was over: whoever is absent stays so, as if no connection was made.
    pub(crate) fn still(&self, attempt: FailedAttempt) {
        let is_absent = self.count.load(Ordering::Relaxed) > 0 && self.lock().contains_key(&attempt.id);
        if is_absent {
            self.refused(attempt);
        }
    }

    /// Hears that it was reached, has a new record, or is gone for good.
    pub(crate) fn forget(&self, id: &str) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut absent = self.lock();
        if absent.remove(id).is_some() {
            self.count.store(absent.len(), Ordering::Relaxed);
            (self.tell)(id, true);
            drop(absent);
            self.wake();
        }
    }

    /// Offers those again whose time is over and who are still `known`, and answers when the next one's time is.
    pub(crate) fn offer(&self, known: impl Fn(&str) -> bool) -> Option<Instant> {
        let (now, mut offered, mut next) = (Instant::now(), false, None::<Instant>);
        let mut absent = self.lock();
        absent.retain(|id, absence| {
            if absence.until > now {
                next = Some(next.map_or(absence.until, |next| next.min(absence.until)));
            } else if !absence.told {
                (self.tell)(id, true);
                (absence.told, offered) = (true, true);
                return known(id);
            }
            true
        });
        self.count.store(absent.len(), Ordering::Relaxed);
        drop(absent);
        if offered {
            self.wake();
        }
        next
    }

    /// The last attempt that made no connection, at whomever of those that are still absent.
    pub(crate) fn last(&self) -> Option<FailedAttempt> {
        self.lock().values().max_by_key(|absence| absence.since).map(|absence| absence.last.clone())
    }

    fn wake(&self) {
        self.news.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Absence>> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(id: &str) -> FailedAttempt {
        FailedAttempt { id: id.into(), endpoint: None, why: "refused".into() }
    }

    /// Absences, and what the balancer was told.
    fn absences() -> (Absences, Arc<Mutex<Vec<bool>>>) {
        let told = Arc::<Mutex<Vec<bool>>>::default();
        let heard = told.clone();
        (Absences::new(move |_, available| heard.lock().unwrap().push(available)), told)
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_at_a_time_tries_whoever_was_absent() {
        let (absences, told) = absences();
        assert!(absences.admits("a") && absences.admits("a"));
        absences.refused(attempt("a"));
        assert!(!absences.admits("a") && absences.admits("b"));
        tokio::time::sleep_until(absences.offer(|_| true).unwrap()).await;
        assert_eq!(absences.offer(|_| true), None);
        assert_eq!(*told.lock().unwrap(), [false, false, true]);
        assert_eq!((absences.offer(|_| true), told.lock().unwrap().len()), (None, 3), "told once");
        assert!(absences.admits("a") && !absences.admits("a"));
        // That attempt was given up.
        tokio::time::advance(PROBE).await;
        assert!(absences.admits("a"));
        absences.still(attempt("a"));
        absences.still(attempt("b"));
        assert!(!absences.admits("a") && absences.admits("b") && absences.admits("b"));
        absences.forget("a");
        assert_eq!(told.lock().unwrap().last(), Some(&true));
        assert!(absences.admits("a") && absences.admits("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_and_the_last_attempt_is_known() {
        let (absences, _) = absences();
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            absences.refused(attempt("a"));
            let next = absences.offer(|_| true).unwrap();
            absences.refused(attempt("a"));
            assert_eq!(absences.offer(|_| true), Some(next), "refused at the same time");
            assert!(next <= Instant::now() + LONGEST);
            longest = longest.max(next - Instant::now());
            tokio::time::sleep_until(next).await;
            absences.offer(|_| true);
            assert!(absences.admits("a"));
        }
        assert!(longest >= LONGEST / 4, "{longest:?}");
        tokio::time::advance(Duration::from_millis(1)).await;
        absences.refused(attempt("b"));
        assert_eq!(&*absences.last().unwrap().id, "b");
        // Whoever is gone for good is not kept.
        tokio::time::advance(LONGEST).await;
        absences.offer(|id| id == "a");
        assert_eq!(&*absences.last().unwrap().id, "a");
    }
}
