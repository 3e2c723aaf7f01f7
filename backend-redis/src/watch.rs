//! Following a scope: the set at one version, every change from the next one on, and every deadline that passes.

use std::convert::Infallible;

use discovery_core::store::{Scope, Sink};
use discovery_core::{Error, ErrorKind, Result};
use tokio::time::{Duration, Instant, sleep_until};

use crate::layout::{Layout, PublicKeys};
use crate::live::Live;
use crate::load::{gap, load, sweep};
use crate::node::Subscription;
use crate::notice::Notice;

/// How often a scope in which nothing ends is looked at, so that its counter of versions lives as long as somebody follows it.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// Delivers until continuity is lost, and says why.
pub(crate) async fn follow(live: &Live, layout: &Layout, scope: &Scope, sink: &dyn Sink) -> Error {
    match deliver(live, layout, scope, sink).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn deliver(live: &Live, layout: &Layout, scope: &Scope, sink: &dyn Sink) -> Result<Infallible> {
    let stem = layout.stem(scope);
    // What happens from the confirmation on is told, so what is read after it misses nothing.
    let mut subscription = live.subscribe(&stem).await?;
    let loaded = load(live, layout, scope, &mut subscription, sink).await?;
    let keys = layout.public_keys(scope);
    let due = loaded.due.unwrap_or_else(|| Instant::now() + IDLE);
    let mut place = Place { stem: stem.clone(), version: loaded.version, due };
    sink.full(loaded.version, loaded.since);
    loop {
        tokio::select! {
            biased;
            message = subscription.inbox.next() => {
                let first = message.ok_or_else(|| broken(&stem))?;
                place.pass_on(Some(first), &mut subscription, &keys, sink)?;
            }
            () = sleep_until(place.due) => {
                let before = place.version;
                // Renewals are not told, so nothing may have passed; what has is told like any other removal.
                let summary = sweep(live, layout, scope).await?;
                place.due = Instant::now() + summary.first.unwrap_or(IDLE);
                // What was told came before the answer, on the same connection.
                let told = subscription.inbox.ready();
                place.pass_on(told, &mut subscription, &keys, sink)?;
                if summary.version < before || summary.version > place.version {
                    return Err(gap(&stem, "the server counts other changes than it told of"));
                }
            }
        }
    }
}

/// How far a watch has come.
struct Place {
    stem: String,
    version: u64,
    /// When something has to be swept, as far as is known.
    due: Instant,
}

impl Place {
    /// Delivers a message together with all that have arrived behind it.
    fn pass_on(
        &mut self,
        mut next: Option<Vec<u8>>,
        subscription: &mut Subscription,
        keys: &PublicKeys,
        sink: &dyn Sink,
    ) -> Result<()> {
        let mut changes = Vec::new();
        while let Some(message) = next {
            // Whatever else is published on the channel is not ours to judge (F09).
            if let Some(notice) = Notice::parse(&message)
                && let Some(notice) = self.admit(notice)?
            {
                changes.push(notice.change(keys));
            }
            next = subscription.inbox.ready();
        }
        if !changes.is_empty() {
            sink.changes(self.version, changes);
        }
        Ok(())
    }

    /// Takes the next change; `None` for one that the set has already.
    fn admit(&mut self, notice: Notice) -> Result<Option<Notice>> {
        if notice.version <= self.version {
            return Ok(None);
        }
        if notice.before != self.version {
            return Err(gap(&self.stem, "a change was not told, or the server lost its data"));
        }
        self.version = notice.version;
        if let Some(ttl) = notice.ttl {
            self.due = self.due.min(Instant::now() + ttl);
        }
        Ok(Some(notice))
    }
}

fn broken(stem: &str) -> Error {
    Error::new(ErrorKind::Unavailable, "watch", stem, "the connection with the notifications broke")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn w02_a_skipped_version_is_a_gap_and_an_old_one_is_no_news() {
        let mut place = Place { stem: "pay".into(), version: 7, due: Instant::now() + IDLE };
        let notice = |before, version| Notice {
            before,
            version,
            ttl: Some(Duration::from_secs(3)),
            id: "a".into(),
            value: None,
        };
        assert!(place.admit(notice(6, 7)).unwrap().is_none());
        assert!(place.admit(notice(7, 8)).unwrap().is_some());
        assert!(place.due <= Instant::now() + Duration::from_secs(3));
        assert_eq!(place.admit(notice(9, 10)).unwrap_err().kind(), ErrorKind::Gap);
        assert_eq!(place.admit(notice(0, 1_000)).unwrap_err().kind(), ErrorKind::Gap, "the server was emptied");
    }
}
