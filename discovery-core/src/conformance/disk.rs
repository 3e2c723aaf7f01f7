//! A start while the store is away, from what an earlier process left on the disk.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::stage::{eventually, fail, ids, instance, shows};
use super::{Fixture, Link, Stage};
use crate::picker::RoundRobin;
use crate::{Balancer, Brake, Context, DiskCache, Outcome, Policy};

const SOON: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_secs(3);

/// A handle with a cache saw a, b and c, and is gone while its link is cut. Answers what the next one needs.
async fn left_behind<F: Fixture>(stage: &Stage<F>) -> (TempDir, Policy, Arc<dyn Link>) {
    let folder = tempfile::tempdir().unwrap_or_else(|error| fail(&error.to_string()));
    let cache = Some(DiskCache::new(folder.path().join("sets")));
    let policy = Policy { cache, brake: Brake::Hold { share: 0.5, grace: Some(GRACE) }, ..stage.policy() };
    stage.put(&[instance("pay", "a"), instance("pay", "b"), instance("pay", "c")]).await;
    let (backend, link) = stage.handle_with("", policy.clone()).await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a", "b", "c"]).await;
    eventually(SOON, "the set on the disk", async || match backend.cache_status() {
        Some(status) if status.written > 0 => Ok(()),
        status => Err(format!("{status:?}")),
    })
    .await;
    link.cut().await;
    drop((watch, backend));
    // What is left of the former handle must not be taken for the next one's.
    eventually(SOON, "the end of the handle", async || if link.open() == 0 { Ok(()) } else { Err(link.open()) }).await;
    (folder, policy, link)
}

/// W13: a process that starts while the store is away serves the set from the disk, marked stale, and is live once the store is back.
pub async fn w13_a_start_without_the_store_is_served_from_the_disk<F: Fixture>(stage: Stage<F>) {
    let (_folder, policy, link) = left_behind(&stage).await;
    let backend = stage.fixture.reopen("", policy).await.unwrap_or_else(|error| fail(&error.to_string()));
    let watch = backend.watch("pay");
    let set = watch.ready(SOON).await.unwrap_or_else(|error| fail(&error.to_string()));
    assert_eq!(ids(&set), ["a", "b", "c"]);
    assert!(set.is_from_disk() && set.held() == 0, "{set:?}");
    assert!(set.freshness().is_stale() && set.freshness().cause().is_some(), "{:?}", set.freshness());
    let balancer = Balancer::new(watch.clone(), RoundRobin::new());
    match balancer.pick_within(&Context::default(), SOON).await {
        Ok(pick) => pick.finish(Outcome::Success),
        Err(error) => fail(&error.to_string()),
    }
    link.pass().await;
    eventually(stage.settle(), "the store's set", async || match watch.latest() {
        Some(set) if set.freshness().is_live() && !set.is_from_disk() && set.len() == 3 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    stage.put(&[instance("pay", "d")]).await;
    shows(&watch, SOON, &["a", "b", "c", "d"]).await;
}

/// W9: what the disk knew is held across a store that comes back empty, until the living have come back.
pub async fn w09_a_store_that_returns_empty_is_compared_with_the_disk<F: Fixture>(stage: Stage<F>) {
    let (_folder, policy, link) = left_behind(&stage).await;
    stage.fixture.restart_empty().await;
    let backend = stage.fixture.reopen("", policy).await.unwrap_or_else(|error| fail(&error.to_string()));
    let watch = backend.watch("pay");
    let mut seen = watch.clone();
    link.pass().await;
    eventually(stage.settle(), "all to be held", async || match watch.latest() {
        Some(set) if set.held() == 3 && set.freshness().is_stale() && !set.is_from_disk() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    stage.put(&[instance("pay", "a"), instance("pay", "b")]).await;
    let end = tokio::time::Instant::now() + GRACE + SOON;
    loop {
        match tokio::time::timeout_at(end, seen.changed()).await {
            Ok(Some(set)) if set.freshness().is_live() => break assert_eq!(ids(&set), ["a", "b"]),
            Ok(Some(set)) if set.len() == 3 => {}
            other => fail(&format!("all three were to stay until the grace was over: {other:?}")),
        }
    }
}
