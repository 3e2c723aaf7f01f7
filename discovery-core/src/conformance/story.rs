//! One story, told on every registry without a line that differs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::stage::{eventually, fail, instance, is_registered, register, shows, stays};
use super::{Fixture, Stage};
use crate::picker::RoundRobin;
use crate::{Balancer, Context, Outcome, State};

const SOON: Duration = Duration::from_secs(3);

/// Picks that many times; a pick that fails fails the test.
fn picks(balancer: &Balancer, count: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..count {
        match balancer.pick(&Context::default()) {
            Ok(pick) => {
                *counts.entry(pick.instance().id().to_owned()).or_insert(0) += 1;
                pick.finish(Outcome::Success);
            }
            Err(error) => fail(&error.to_string()),
        }
    }
    counts
}

/// Waits until the shares are these: the balancer follows its watch in a task of its own.
async fn shared(balancer: &Balancer, shares: &[(&str, usize)]) {
    let expected: BTreeMap<_, _> = shares.iter().map(|(id, share)| ((*id).to_owned(), *share)).collect();
    let total = expected.values().sum();
    eventually(SOON, &format!("shares of {expected:?}"), async || {
        let counts = picks(balancer, total);
        if counts == expected { Ok(()) } else { Err(counts) }
    })
    .await;
}

/// Three register, are watched and picked; one is killed and restarted, the store goes away and returns, one drains. No pick fails.
pub async fn story_of_three_instances<F: Fixture>(stage: Stage<F>) {
    let (reader, _) = stage.handle().await;
    let (a, _) = stage.handle().await;
    let (b, b_link) = stage.handle().await;
    let (c, _) = stage.handle().await;
    let watch = reader.watch("story");
    let balancer = Balancer::new(watch.clone(), RoundRobin::new());

    let first = register(&a, instance("story", "a")).await;
    let killed = register(&b, instance("story", "b")).await;
    let third = register(&c, instance("story", "c")).await;
    shows(&watch, SOON, &["a", "b", "c"]).await;
    // The balancer hears of its first set when the watch does, in a task of its own.
    if let Err(error) = balancer.pick_within(&Context::default(), SOON).await {
        fail(&error.to_string());
    }
    shared(&balancer, &[("a", 100), ("b", 100), ("c", 100)]).await;

    // Killed: the store hears no more of it, and it never comes back.
    b_link.cut().await;
    drop((killed, b));
    shows(&watch, stage.fixture.ttl() + Duration::from_secs(1), &["a", "c"]).await;
    shared(&balancer, &[("a", 100), ("c", 100)]).await;

    // Restarted, on a new connection.
    let (restarted, _) = stage.handle().await;
    let second = register(&restarted, instance("story", "b")).await;
    shows(&watch, SOON, &["a", "b", "c"]).await;
    shared(&balancer, &[("a", 100), ("b", 100), ("c", 100)]).await;

    // The store is away, and returns: nobody is lost, and picks go on.
    stage.fixture.freeze_store(true).await;
    eventually(Duration::from_secs(15), "stale", async || {
        if watch.freshness().is_stale() { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
    stays(stage.fixture.ttl(), "the set", async || {
        picks(&balancer, 3);
        match watch.latest() {
            Some(set) if set.len() == 3 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    stage.fixture.freeze_store(false).await;
    for registration in [&first, &second, &third] {
        is_registered(registration, stage.settle()).await;
    }
    eventually(stage.settle(), "live", async || {
        picks(&balancer, 3);
        match watch.latest() {
            Some(set) if set.freshness().is_live() && set.len() == 3 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    // One drains: it is seen to, then it is gone.
    let (drained, ()) = tokio::join!(third.drain(Duration::from_secs(1)), async {
        eventually(Duration::from_secs(1), "the draining state", async || {
            let set = watch.latest().ok_or("no set")?;
            let state = set.get("c").ok_or("gone before its grace was over")?.state();
            if state == State::Draining { Ok(()) } else { Err("serving") }
        })
        .await;
    });
    assert_eq!(drained.map_err(|error| error.to_string()), Ok(()));
    shows(&watch, SOON, &["a", "b"]).await;
    shared(&balancer, &[("a", 100), ("b", 100)]).await;
    drop((first, second));
}
