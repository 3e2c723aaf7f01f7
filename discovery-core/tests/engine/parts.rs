//! Full sets that come in parts, from a store that says exactly what it is told to say.

use std::borrow::Cow;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::conformance::eventually;
use discovery_core::store::{Capabilities, Digest, RawChange, RawRecord, Scope, Sink, Store};
use discovery_core::{Backend, Engine, Error, ErrorKind, KeySpace, Policy, Result, encode};

use super::{converges, instance, path, weights};

/// What it delivers on each [`Store::follow`] in turn: after the last it stays silent, after any other the connection breaks.
struct Scripted {
    space: KeySpace,
    limits: Capabilities,
    follows: Vec<fn(&dyn Sink)>,
    turn: AtomicUsize,
}

fn open(follows: &[fn(&dyn Sink)]) -> Arc<dyn Backend> {
    let (space, limits) = (KeySpace::new("").unwrap(), Capabilities::read_only("scripted"));
    let store = Scripted { space, limits, follows: follows.to_vec(), turn: AtomicUsize::new(0) };
    Engine::start(Arc::new(store), Policy::default()).unwrap()
}

#[async_trait]
impl Store for Scripted {
    fn address(&self) -> String {
        "scripted".to_owned()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.limits
    }

    fn parse_key<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        self.space.split(key)
    }

    async fn connect(&self) -> Result<()> {
        Ok(())
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }

    async fn follow(&self, _scope: &Scope, sink: &dyn Sink) -> Error {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).min(self.follows.len() - 1);
        self.follows[turn](sink);
        if turn + 1 == self.follows.len() {
            pending().await
        }
        Error::new(ErrorKind::Unavailable, "follow", "scripted", "the script says so")
    }

    async fn digest(&self, _scope: &Scope, _since: u64) -> Result<Digest> {
        Err(Error::new(ErrorKind::Unavailable, "count", "scripted", "it does not count"))
    }
}

fn record(id: &str, weight: u32, revision: u64) -> RawRecord {
    RawRecord { key: path(id), revision, value: encode(&instance(id, weight)) }
}

fn put(id: &str, weight: u32, revision: u64) -> RawChange {
    RawChange::Put(record(id, weight, revision))
}

fn removed(id: &str, revision: u64) -> RawChange {
    RawChange::Delete(path(id), revision)
}

/// What came while the set was read is news to every part of it, and to what no part had.
#[tokio::test]
async fn w02_what_changed_while_a_set_was_read_counts_and_what_is_older_does_not() {
    let backend = open(&[|sink| {
        sink.part(vec![record("a", 1, 1), record("c", 1, 1)]);
        sink.part(vec![record("c", 2, 1)]);
        sink.full(5, vec![removed("a", 2), put("d", 1, 3), put("c", 3, 4), put("b", 1, 5)]);
        sink.changes(6, vec![put("e", 1, 6), put("a", 9, 2), removed("d", 2)]);
    }]);
    let watch = backend.watch("pay");
    watch.ready(Duration::from_secs(3)).await.unwrap();
    converges(&watch, Duration::from_secs(3), &[("b", 1), ("c", 3), ("d", 1), ("e", 1)]).await;
}

/// Of a key that comes twice the later record counts, readable or not, known or not; nothing of the earlier one stays.
#[tokio::test]
async fn w06_w10_of_a_key_that_is_given_twice_the_later_record_counts() {
    fn junk(id: &str) -> RawRecord {
        RawRecord { value: b"junk".to_vec(), ..record(id, 1, 1) }
    }
    let backend = open(&[
        |sink| {
            sink.part(vec![record("a", 2, 1), record("b", 1, 1), record("c", 1, 1), record("d", 1, 1)]);
            sink.part(vec![junk("b")]);
            sink.full(1, vec![put("c", 3, 2), removed("d", 2)]);
        },
        |sink| {
            // The later record of "a" is the one that is known.
            sink.part(vec![record("a", 1, 3), record("c", 4, 3)]);
            sink.part(vec![record("a", 2, 3), junk("c")]);
            sink.full(3, Vec::new());
        },
        |sink| {
            sink.part(vec![record("a", 2, 4)]);
            sink.full(4, Vec::new());
        },
    ]);
    let mut watch = backend.watch("pay");
    let first = watch.ready(Duration::from_secs(3)).await.unwrap();
    assert_eq!((weights(&watch), first.unreadable()), (vec![("a".to_owned(), 2), ("c".to_owned(), 3)], 1));
    let mut seen = Vec::new();
    while seen.last() != Some(&(vec![("a".to_owned(), 2)], 0)) {
        let set = tokio::time::timeout(Duration::from_secs(5), watch.changed()).await.unwrap().unwrap();
        let all = set.instances().iter().map(|i| (i.id().to_owned(), i.weight())).collect();
        seen.push((all, set.unreadable()));
    }
    let expected = (vec![("a".to_owned(), 2), ("c".to_owned(), 3)], 1);
    assert!(seen.iter().all(|set| *set == expected || set.0.len() == 1), "{seen:?}");
}

/// Removals that are told while the first set after a gap is read vanish across the gap, so the brake holds them.
#[tokio::test(start_paused = true)]
async fn w09_what_vanishes_while_a_set_is_read_across_a_gap_is_held() {
    let backend = open(&[
        |sink| {
            sink.part(vec![record("a", 1, 1), record("b", 1, 1)]);
            sink.full(1, Vec::new());
        },
        |sink| {
            sink.part(vec![record("a", 1, 1), record("b", 1, 1)]);
            sink.full(3, vec![removed("a", 2), removed("b", 3)]);
            sink.changes(4, vec![put("b", 2, 4)]);
        },
    ]);
    let watch = backend.watch("pay");
    watch.ready(Duration::from_secs(3)).await.unwrap();
    eventually(Duration::from_secs(5), "a hold", async || match watch.latest() {
        Some(set) if (set.held(), set.len()) == (1, 2) && !set.freshness().is_live() => Ok(()),
        other => Err(other.map(|set| (set.held(), set.len()))),
    })
    .await;
    converges(&watch, Duration::from_secs(60), &[("b", 2)]).await;
}

/// A read that was given up leaves nothing behind, neither in the next set nor as news.
#[tokio::test]
async fn w02_parts_of_a_set_that_was_never_full_are_forgotten() {
    let backend = open(&[
        |sink| sink.part(vec![record("ghost", 1, 1)]),
        |sink| {
            sink.part(vec![record("a", 1, 1)]);
            sink.full(1, Vec::new());
            sink.part(vec![record("ghost", 1, 2)]);
        },
        |sink| {
            sink.part(vec![record("a", 2, 3), record("b", 1, 3)]);
            sink.full(3, Vec::new());
        },
    ]);
    let watch = backend.watch("pay");
    watch.ready(Duration::from_secs(5)).await.unwrap();
    converges(&watch, Duration::from_secs(5), &[("a", 2), ("b", 1)]).await;
}

/// Many records are decoded by whoever is free, and are in the set all the same, also on a second reading and in one thread.
#[test]
fn l04_many_records_are_all_there_however_many_threads_there_are() {
    fn many(sink: &dyn Sink, from: u64, weight: u32) {
        for part in 0..3 {
            let ids = (part * 1_300..(part + 1) * 1_300).map(|n| format!("{n:05}"));
            sink.part(ids.map(|id| record(&id, weight, from)).collect());
        }
        sink.full(from, Vec::new());
    }
    for threads in [1, 4] {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
        runtime.block_on(async {
            let backend = open(&[|sink| many(sink, 1, 1), |sink| many(sink, 2, 2)]);
            let watch = backend.watch("pay");
            eventually(Duration::from_secs(10), "the second set", async || {
                let seen =
                    watch.latest().map_or(0, |_| weights(&watch).iter().filter(|(_, weight)| *weight == 2).count());
                if seen == 3_900 { Ok(()) } else { Err(seen) }
            })
            .await;
            assert_eq!(watch.latest().unwrap().unreadable(), 0);
        });
    }
}
