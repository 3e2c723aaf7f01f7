//! R4 and R5: registrations come back by themselves, and only if they have to.

use std::sync::Arc;
use std::time::Duration;

use super::stage::{eventually, instance, is_registered, path, register, shows, stays};
use super::{Fixture, Stage};
use crate::{Backend, Registration, Watch};

const SOON: Duration = Duration::from_secs(3);

/// Registers one instance and watches it from another handle.
async fn registered<F: Fixture>(stage: &Stage<F>) -> (Arc<dyn Backend>, Arc<dyn super::Link>, Registration, Watch) {
    let ((backend, link), (reader, _)) = (stage.handle().await, stage.handle().await);
    let registration = register(&backend, instance("pay", "a")).await;
    let watch = reader.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    (backend, link, registration, watch)
}

/// The record is back, the handle says so, and it stays for three TTLs: the new lease is renewed.
async fn holds<F: Fixture>(stage: &Stage<F>, registration: &Registration) {
    eventually(stage.settle(), "the record to be back", async || {
        if stage.is_stored("pay", "a").await { Ok(()) } else { Err(registration.state()) }
    })
    .await;
    is_registered(registration, stage.settle()).await;
    stays(stage.fixture.ttl() * 3, "the repaired record", async || {
        if stage.is_stored("pay", "a").await { Ok(()) } else { Err("it is gone") }
    })
    .await;
}

/// R4: lease revoked or session expired.
pub async fn r04_a_revoked_lease_is_replaced<F: Fixture>(stage: Stage<F>) {
    let (_backend, _, registration, watch) = registered(&stage).await;
    stage.fixture.expire_leases().await;
    holds(&stage, &registration).await;
    shows(&watch, SOON, &["a"]).await;
}

/// R4: key deleted by hand.
pub async fn r04_a_deleted_record_comes_back<F: Fixture>(stage: Stage<F>) {
    let (_backend, _, registration, watch) = registered(&stage).await;
    stage.fixture.delete_raw(&path("pay", "a")).await;
    shows(&watch, SOON, &[]).await;
    holds(&stage, &registration).await;
    shows(&watch, SOON, &["a"]).await;
}

/// R4: record overwritten without a lease; without repair it would outlive its process for ever.
pub async fn r04_a_record_overwritten_without_a_lease_comes_back<F: Fixture>(stage: Stage<F>) {
    let (backend, _, registration, watch) = registered(&stage).await;
    let foreign = instance("pay", "a").to_builder().weight(1).build();
    stage.put(&foreign.into_iter().collect::<Vec<_>>()).await;
    let weight = async |wanted: u32| {
        eventually(stage.settle(), "the weight", async || {
            let found = watch.latest().and_then(|s| s.get("a").map(|i| i.weight()));
            if found == Some(wanted) { Ok(()) } else { Err(found) }
        })
        .await;
    };
    weight(1).await;
    weight(crate::DEFAULT_WEIGHT).await;
    holds(&stage, &registration).await;
    drop((registration, backend));
    shows(&watch, stage.settle(), &[]).await;
}

/// R4: store restarted empty.
pub async fn r04_an_emptied_store_is_filled_again<F: Fixture>(stage: Stage<F>) {
    let (_backend, _, registration, watch) = registered(&stage).await;
    stage.fixture.restart_empty().await;
    holds(&stage, &registration).await;
    shows(&watch, stage.settle(), &["a"]).await;
}

/// R4: an outage longer than the TTL.
pub async fn r04_an_outage_longer_than_the_ttl_is_survived<F: Fixture>(stage: Stage<F>) {
    let (_backend, link, registration, watch) = registered(&stage).await;
    link.cut().await;
    shows(&watch, stage.fixture.ttl() + SOON, &[]).await;
    link.pass().await;
    holds(&stage, &registration).await;
    shows(&watch, SOON, &["a"]).await;
}

/// R5: a reconnect on which the lease survived writes nothing, and no watcher sees a change.
pub async fn r05_a_reconnect_writes_nothing<F: Fixture>(stage: Stage<F>) {
    let (backend, link, registration, watch) = registered(&stage).await;
    let own = backend.watch("pay");
    let first = (shows(&own, SOON, &["a"]).await, shows(&watch, SOON, &["a"]).await);
    let (before, connects) = (stage.fixture.revision().await, link.connects());
    link.cut().await;
    eventually(
        SOON,
        "the outage to be seen",
        async || {
            if own.freshness().is_stale() { Ok(()) } else { Err(own.freshness()) }
        },
    )
    .await;
    link.pass().await;
    is_registered(&registration, stage.settle()).await;
    eventually(stage.settle(), "the watch to be live", async || {
        if own.freshness().is_live() { Ok(()) } else { Err(own.freshness()) }
    })
    .await;
    assert!(link.connects() > connects, "there was no reconnect");
    if backend.capabilities().lease_survives_reconnect {
        stays(stage.fixture.ttl(), "the store's revision", async || {
            let now = stage.fixture.revision().await;
            if now == before { Ok(()) } else { Err((before, now)) }
        })
        .await;
    }
    for (watch, first) in [(&own, first.0), (&watch, first.1)] {
        let now = shows(watch, SOON, &["a"]).await;
        assert_eq!(now.changes_since(&first), [], "a watcher saw a change");
    }
}

/// R5: the same over a restart of the store that kept its data.
pub async fn r05_a_restart_that_kept_its_data_is_survived<F: Fixture>(stage: Stage<F>) {
    let (backend, _, registration, watch) = registered(&stage).await;
    let first = shows(&watch, SOON, &["a"]).await;
    let before = stage.fixture.revision().await;
    stage.fixture.restart().await;
    is_registered(&registration, stage.settle()).await;
    eventually(stage.settle(), "the watch to be live", async || {
        if watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
    let now = shows(&watch, stage.settle(), &["a"]).await;
    if backend.capabilities().lease_survives_restart {
        assert_eq!(stage.fixture.revision().await, before, "something was written");
        assert_eq!(now.changes_since(&first), [], "a watcher saw a change");
    }
}
