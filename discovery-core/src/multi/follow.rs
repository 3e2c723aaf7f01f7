//! The task behind a watch of several registries: follows each, and publishes what they show together.

use std::sync::Arc;

use futures_util::future::select_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::blend::Blend;
use super::choice::{Choice, Counted, Shown};
use super::{MultiOptions, named};
use crate::registry::Opened;
use crate::snapshot::{Freshness, Since, View};
use crate::{Error, Watch};

/// One side of a watch.
struct Side<V: View> {
    /// Keeps the side's subscription.
    _watch: Watch<V>,
    receiver: watch::Receiver<Arc<V>>,
    address: String,
    closed: bool,
}

pub(super) struct Follow<B: Blend> {
    sides: Vec<Side<B::View>>,
    subject: String,
    choice: Choice,
    blend: B,
    freshness: Freshness,
    views: watch::Sender<Arc<B::View>>,
}

impl<B: Blend> Follow<B> {
    /// Opens a watch of `subject` over watches of the sides, each with the side's address.
    pub(super) fn open(
        watches: Vec<(Watch<B::View>, String)>,
        subject: String,
        options: MultiOptions,
        blend: B,
    ) -> Opened<B::View> {
        let choice = Choice::new(watches.len(), options);
        let sides = watches.into_iter().map(|(watch, address)| {
            let receiver = watch.receiver();
            Side { _watch: watch, receiver, address, closed: false }
        });
        let freshness = Freshness::Loading(Since::now(), None);
        let (views, receiver) = watch::channel(blend.view(&freshness));
        let follow = Self { sides: sides.collect(), subject, choice, blend, freshness, views };
        (receiver, Box::pin(follow.run()))
    }

    /// Follows until every side is closed (W5).
    async fn run(mut self) {
        loop {
            let again = self.look();
            let open = self.sides.iter_mut().filter(|side| !side.closed);
            let news: Vec<_> = open
                .map(|side| async {
                    let news = side.receiver.changed().await;
                    side.closed = news.is_err();
                })
                .map(Box::pin)
                .collect();
            if news.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                _ = select_all(news) => {}
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
            }
        }
    }

    /// Takes what the sides show now, and answers when to look again if nothing happens.
    fn look(&mut self) -> Option<Instant> {
        let read = |side: &mut Side<B::View>| (!side.closed).then(|| side.receiver.borrow_and_update().clone());
        let views: Vec<Option<Arc<B::View>>> = self.sides.iter_mut().map(read).collect();
        let shows = |view: &B::View| Shown {
            freshness: view.freshness().clone(),
            is_empty: B::is_empty(view),
            from_disk: B::is_from_disk(view),
        };
        let shown: Vec<_> = views.iter().map(|view| view.as_deref().map(shows)).collect();
        let decision = self.choice.decide(&shown, Instant::now());
        let mut changed = self.blend.take(&views, &decision);
        let freshness = self.freshness(&shown, decision.counted);
        changed |= differs(&self.freshness, &freshness);
        if changed {
            self.freshness = freshness;
            self.views.send_replace(self.blend.view(&self.freshness));
        }
        decision.again
    }

    /// Live if every side that it depends on is; otherwise it says which sides are not, since when the first of them is not, and why.
    fn freshness(&self, shown: &[Option<Shown>], counted: Counted) -> Freshness {
        let (mut since, mut causes): (Option<Since>, Vec<(&Side<_>, Option<&Error>)>) = (None, Vec::new());
        for (at, (side, shown)) in self.sides.iter().zip(shown).enumerate() {
            let Some(Shown { freshness, .. }) = shown else { continue };
            let Some(began) = freshness.since().filter(|_| counted.depends_on(at)) else { continue };
            since = since.filter(|since| since.elapsed() >= began.elapsed()).or(Some(began));
            causes.push((side, freshness.cause()));
        }
        let why = named("follow", &self.subject, causes.iter().map(|(side, cause)| (&*side.address, *cause)));
        match (counted, since) {
            (Counted::Nobody, Some(since)) => {
                Freshness::Loading(since, why.filter(|_| causes.iter().any(|(_, cause)| cause.is_some())))
            }
            (_, None) if counted != Counted::Kept => Freshness::Live,
            // Those that it was read from are closed.
            (_, since) => {
                let nobody = || Error::closed("follow", self.subject.clone());
                Freshness::Stale(since.unwrap_or_else(Since::now), why.unwrap_or_else(nobody))
            }
        }
    }
}

/// Whether watchers should hear of it.
fn differs(before: &Freshness, now: &Freshness) -> bool {
    let text = |freshness: &Freshness| freshness.cause().map(|cause| (cause.kind(), cause.message().to_owned()));
    std::mem::discriminant(before) != std::mem::discriminant(now) || text(before) != text(now)
}
