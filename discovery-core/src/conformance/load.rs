//! L1–L4: what the store has to bear.

use std::time::Duration;

use super::stage::{eventually, fail, instance, is_registered, path, register, shows, stays};
use super::{Fixture, Stage};
use crate::Instance;

const SOON: Duration = Duration::from_secs(3);

/// L1: a minute without the store sees at most thirty attempts to connect, however much the handle holds.
pub async fn l01_an_outage_costs_few_attempts<F: Fixture>(stage: Stage<F>) {
    // The backoff's default cap, which the bound belongs to.
    let policy = crate::Policy { backoff: crate::Policy::default().backoff, ..stage.policy() };
    let (backend, link) = stage.handle_with("", policy).await;
    let mut held = Vec::new();
    for n in 0..5 {
        held.push(register(&backend, instance(&format!("s{n}"), "a")).await);
    }
    let watches: Vec<_> = (0..20).map(|n| backend.watch(&format!("s{n}"))).collect();
    shows(&watches[0], SOON, &["a"]).await;
    let before = link.connects();
    link.cut().await;
    let minute = Duration::from_secs(60);
    stays(minute, "few attempts", async || match link.connects() - before {
        attempts if attempts <= 30 => Ok(()),
        attempts => Err(attempts),
    })
    .await;
    assert!(link.connects() > before, "nobody tried to connect");
    link.pass().await;
    for registration in &held {
        is_registered(registration, stage.settle() + Duration::from_secs(10)).await;
    }
}

/// L2: when the store comes back, what is held is read once and what survived is not written.
pub async fn l02_a_return_costs_what_is_held<F: Fixture>(stage: Stage<F>) {
    let policy = crate::Policy { reconcile: Duration::from_secs(3_600), ..stage.policy() };
    let (backend, link) = stage.handle_with("", policy).await;
    stage.put(&many("pay", 300)).await;
    let start = link.received();
    let watches: Vec<_> = (0..10).map(|_| backend.watch("pay")).collect();
    let mut held = Vec::new();
    for n in 0..10 {
        held.push(register(&backend, instance("own", &format!("{n}"))).await);
    }
    eventually(SOON, "the set", async || match watches[9].latest() {
        Some(snapshot) if snapshot.len() == 300 => Ok(()),
        other => Err(other.map(|s| s.len())),
    })
    .await;
    let once = link.received() - start;
    let revision = stage.fixture.revision().await;
    link.cut().await;
    eventually(
        SOON,
        "stale",
        async || {
            if watches[0].freshness().is_stale() { Ok(()) } else { Err(watches[0].freshness()) }
        },
    )
    .await;
    let start = link.received();
    link.pass().await;
    for registration in &held {
        is_registered(registration, stage.settle()).await;
    }
    for watch in &watches {
        eventually(
            stage.settle(),
            "live",
            async || {
                if watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) }
            },
        )
        .await;
    }
    let again = link.received() - start;
    assert!(again <= once + once / 2, "{again} bytes on the return, {once} at first");
    if backend.capabilities().lease_survives_reconnect {
        assert_eq!(stage.fixture.revision().await, revision, "something that survived was written");
    }
}

/// L2: a store that comes back empty gets each record once: what an audit misses is not written beside what a lost lease makes dirty.
pub async fn l02_an_emptied_store_is_filled_once<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let mut held = Vec::new();
    for n in 0..20 {
        held.push(register(&backend, instance(&format!("s{n}"), "a")).await);
    }
    stage.fixture.restart_empty().await;
    for (n, registration) in held.iter().enumerate() {
        eventually(stage.settle(), "the record", async || {
            if stage.is_stored(&format!("s{n}"), "a").await { Ok(()) } else { Err(registration.state()) }
        })
        .await;
        is_registered(registration, stage.settle()).await;
    }
    let revision = stage.fixture.revision().await;
    stays(stage.settle(), "what was written once", async || match stage.fixture.revision().await {
        now if now == revision => Ok(()),
        now => Err(now),
    })
    .await;
}

/// L3: a change to one of many instances transfers one record.
pub async fn l03_a_change_costs_one_record<F: Fixture>(stage: Stage<F>) {
    let policy = crate::Policy { reconcile: Duration::from_secs(3_600), ..stage.policy() };
    let (backend, link) = stage.handle_with("", policy).await;
    stage.put(&many("pay", 1_000)).await;
    let watch = backend.watch("pay");
    eventually(SOON, "the set", async || match watch.latest() {
        Some(snapshot) if snapshot.len() == 1_000 => Ok(()),
        other => Err(other.map(|s| s.len())),
    })
    .await;
    let set = link.received();
    for weight in 1..=10 {
        let changed = many("pay", 1).into_iter().filter_map(|i| i.to_builder().weight(weight).build().ok());
        stage.put(&changed.collect::<Vec<_>>()).await;
        eventually(SOON, "the change", async || {
            match watch.latest().and_then(|s| s.get("00000").map(|i| i.weight())) {
                Some(seen) if seen == weight => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }
    let changes = link.received() - set;
    // Ten changes of a thousandth each; a tenth of the set leaves room for probes and framing.
    assert!(changes < set / 10, "{changes} bytes for ten changes, {set} for the set");
}

/// L4: six thousand records of a kibibyte are read whole, in a few seconds, and then followed.
pub async fn l04_f17_a_large_set_is_read_whole<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let padding = "x".repeat(1024);
    let large: Vec<_> = many("pay", 6_000)
        .into_iter()
        .filter_map(|instance| instance.to_builder().metadata("padding", padding.as_str()).build().ok())
        .collect();
    stage.put(&large).await;
    let watch = backend.watch("pay");
    let first = watch.ready(Duration::from_secs(5)).await.unwrap_or_else(|error| fail(&error.to_string()));
    assert_eq!(first.len(), 6_000);
    stage.fixture.delete_raw(&path("pay", "00007")).await;
    eventually(SOON, "the change", async || match watch.latest() {
        Some(snapshot) if snapshot.len() == 5_999 => Ok(()),
        other => Err(other.map(|s| s.len())),
    })
    .await;
}

fn many(service: &str, count: usize) -> Vec<Instance> {
    (0..count).map(|n| instance(service, &format!("{n:05}"))).collect()
}
