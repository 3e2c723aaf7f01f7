//! W2 and W8–W10: nothing is lost, nothing goes back, and a gap is compared.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::stage::{eventually, fail, ids, instance, path, register, shows, shows_live, stays};
use super::{Fixture, Link, Stage};
use crate::{Backend, Brake, Change, Watch};

const SOON: Duration = Duration::from_secs(3);

/// W2: watches that open while instances come and go miss nothing.
pub async fn w02_no_change_is_lost_while_watches_open<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let mut watches = Vec::new();
    for round in 0..100u32 {
        let service = format!("flap-{}", round % 10);
        let id = format!("{}", round % 5);
        if round % 3 == 2 {
            stage.fixture.delete_raw(&path(&service, &id)).await;
        } else {
            stage
                .put(&[instance(&service, &id)
                    .to_builder()
                    .weight(round)
                    .build()
                    .unwrap_or_else(|e| fail(&e.to_string()))])
                .await;
        }
        watches.push((service.clone(), backend.watch(&service)));
        if round % 7 == 0 {
            watches.retain(|(name, _)| *name != service);
            watches.push((service.clone(), backend.watch(&service)));
        }
    }
    for (service, watch) in &watches {
        let mut stored = BTreeSet::new();
        for id in 0..5 {
            if let Some(value) = stage.fixture.get_raw(&path(service, &id.to_string())).await {
                stored.insert(value);
            }
        }
        eventually(SOON, "the set to be the store's", async || {
            let snapshot = watch.latest().ok_or("no set")?;
            let seen: BTreeSet<_> = snapshot.instances().iter().map(|i| crate::encode(i)).collect();
            if seen == stored { Ok(()) } else { Err("it differs") }
        })
        .await;
    }
}

/// Watches a, b and c, and cuts the link.
async fn cut_off<F: Fixture>(stage: &Stage<F>, policy: crate::Policy) -> (Arc<dyn Backend>, Arc<dyn Link>, Watch) {
    let (backend, link) = stage.handle_with("", policy).await;
    stage.put(&[instance("pay", "a"), instance("pay", "b"), instance("pay", "c")]).await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a", "b", "c"]).await;
    link.cut().await;
    eventually(SOON, "stale", async || if watch.freshness().is_stale() { Ok(()) } else { Err(watch.freshness()) })
        .await;
    (backend, link, watch)
}

/// W2: what died in a gap is gone after it, with exactly one removal, also if the store forgot what happened meanwhile.
pub async fn w02_f02_a_gap_is_compared_not_merged<F: Fixture>(stage: Stage<F>) {
    let (_backend, link, watch) = cut_off(&stage, stage.policy()).await;
    let before = watch.latest().unwrap_or_else(|| fail("no set"));
    stage.fixture.delete_raw(&path("pay", "b")).await;
    for n in 0..200 {
        stage.fixture.put_raw(vec![(format!("/elsewhere/{n}"), b"x".to_vec())]).await;
    }
    stage.fixture.forget_history().await;
    link.pass().await;
    let after = shows(&watch, stage.settle(), &["a", "c"]).await;
    match after.changes_since(&before).as_slice() {
        [Change::Removed(b)] if b.id() == "b" => {}
        other => fail(&format!("one removal expected: {other:?}")),
    }
    let connects = link.connects();
    stays(Duration::from_secs(3), "the connection", async || {
        if link.connects() == connects { Ok(()) } else { Err(link.connects()) }
    })
    .await;
    stage.put(&[instance("pay", "d")]).await;
    shows(&watch, SOON, &["a", "c", "d"]).await;
}

/// W8: a watch whose notifications do not arrive finds the difference by itself.
///
/// A real store cannot be made to lose a notification on a connection that works; there the subscription is silenced instead.
pub async fn w08_sets_converge_without_notifications<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    stage.put(&[instance("pay", "a")]).await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    link.swallow_replies().await;
    stage.put(&[instance("pay", "b")]).await;
    stage.fixture.delete_raw(&path("pay", "a")).await;
    link.pass().await;
    shows(&watch, stage.settle() + stage.policy().reconcile, &["b"]).await;
}

/// W9: what leaves by a change seen live is removed at once, the last one too, and comes back at once.
pub async fn w09_live_removals_are_immediate_and_the_last_one_too<F: Fixture>(stage: Stage<F>) {
    let ((backend, _), (reader, _)) = (stage.handle().await, stage.handle().await);
    let (a, b) = (register(&backend, instance("pay", "a")).await, register(&backend, instance("pay", "b")).await);
    let watch = reader.watch("pay");
    shows(&watch, SOON, &["a", "b"]).await;
    assert_eq!(a.deregister().await.map_err(|e| e.to_string()), Ok(()));
    shows(&watch, SOON, &["b"]).await;
    assert_eq!(b.deregister().await.map_err(|e| e.to_string()), Ok(()));
    let empty = shows(&watch, SOON, &[]).await;
    assert!(empty.freshness().is_live());
    let _again = register(&backend, instance("pay", "a")).await;
    shows(&watch, SOON, &["a"]).await;
}

/// W9: a set that shrinks to nothing across a gap is held as stale, and let go after the grace.
pub async fn w09_a_sharp_shrink_across_a_gap_is_held<F: Fixture>(stage: Stage<F>) {
    let grace = Duration::from_secs(3);
    let policy = crate::Policy { brake: Brake::Hold { share: 0.5, grace: Some(grace) }, ..stage.policy() };
    let (_backend, link, watch) = cut_off(&stage, policy).await;
    for id in ["a", "b", "c"] {
        stage.fixture.delete_raw(&path("pay", id)).await;
    }
    link.pass().await;
    let held = eventually(stage.settle(), "the set to be held", async || match watch.latest() {
        Some(snapshot) if snapshot.held() == 3 => Ok(snapshot),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert_eq!(ids(&held), ["a", "b", "c"]);
    assert!(held.freshness().is_stale(), "{:?}", held.freshness());
    // One of the living comes back; it is no longer held.
    stage.put(&[instance("pay", "b")]).await;
    eventually(grace, "the returned to be live", async || match watch.latest() {
        Some(snapshot) if snapshot.held() == 2 && snapshot.len() == 3 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let after = shows_live(&watch, grace + SOON, &["b"]).await;
    assert_eq!(after.held(), 0);
}

/// W9: the policy is the caller's: without the brake the store is believed at once.
pub async fn w09_without_the_brake_the_store_is_believed<F: Fixture>(stage: Stage<F>) {
    let policy = crate::Policy { brake: Brake::Off, ..stage.policy() };
    let (_backend, link, watch) = cut_off(&stage, policy).await;
    for id in ["a", "b", "c"] {
        stage.fixture.delete_raw(&path("pay", id)).await;
    }
    link.pass().await;
    shows_live(&watch, stage.settle(), &[]).await;
}

/// W10: weights that only rise are never seen to fall, and what was removed stays away, through outages and reconciliation.
pub async fn w10_a_watch_never_goes_back<F: Fixture>(stage: Stage<F>) {
    let policy = crate::Policy { reconcile: Duration::from_millis(100), ..stage.policy() };
    let (backend, link) = stage.handle_with("", policy).await;
    let mut watch = backend.watch("pay");
    shows(&watch, SOON, &[]).await;
    let observer = tokio::spawn(async move {
        let (mut last, mut gone) = (0, false);
        while let Some(snapshot) = watch.changed().await {
            match snapshot.get("a") {
                Some(a) if gone => return Err(format!("it came back with weight {}", a.weight())),
                Some(a) if a.weight() < last => return Err(format!("weight {} after {last}", a.weight())),
                Some(a) => last = a.weight(),
                None => gone = last > 0,
            }
        }
        Ok(last)
    });
    for weight in 1..=60 {
        let a = instance("pay", "a").to_builder().weight(weight).build();
        stage.put(&a.into_iter().collect::<Vec<_>>()).await;
        match weight % 20 {
            5 => link.cut().await,
            10 => link.pass().await,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let watch = backend.watch("pay");
    eventually(stage.settle(), "the last weight", async || {
        match watch.latest().and_then(|s| s.get("a").map(|i| i.weight())) {
            Some(60) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    stage.fixture.delete_raw(&path("pay", "a")).await;
    shows(&watch, SOON, &[]).await;
    stays(Duration::from_secs(1), "the removal", async || match watch.latest() {
        Some(snapshot) if snapshot.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    drop(watch);
    assert_eq!(backend.close(SOON).await.map_err(|e| e.to_string()), Ok(()));
    let seen = observer.await.unwrap_or_else(|error| fail(&error.to_string()));
    assert_eq!(seen, Ok(60));
}
