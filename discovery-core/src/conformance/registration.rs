//! R1–R3 and R6–R12: registering, updating and ending.

use std::time::Duration;

use tokio::time::Instant;

use super::stage::{eventually, fail, ids, instance, is_registered, path, register, shows, stays};
use super::{Fixture, Stage};
use crate::{ErrorKind, RegisterOptions, RegistrationState, State};

const SOON: Duration = Duration::from_secs(3);

/// R1: what is registered can be read by others as soon as `register` returns.
pub async fn r01_registered_can_be_read_by_others<F: Fixture>(stage: Stage<F>) {
    let ((writer, _), (reader, _)) = (stage.handle().await, stage.handle().await);
    let watch = reader.watch("pay");
    shows(&watch, SOON, &[]).await;
    let _registration = register(&writer, instance("pay", "a")).await;
    assert!(stage.is_stored("pay", "a").await, "register returned before the record could be read");
    shows(&watch, SOON, &["a"]).await;
}

/// R1: without the store, `register` fails by its deadline, and what it tried never shows up.
pub async fn r01_an_unconfirmed_registration_fails_by_its_deadline_and_leaves_nothing<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let _other = register(&backend, instance("pay", "other")).await;
    link.swallow_replies().await;
    let (begun, deadline) = (Instant::now(), Duration::from_millis(1_500));
    let options = RegisterOptions::default().with_deadline(deadline);
    let Err(error) = backend.register(instance("pay", "a"), options).await else {
        fail("registering succeeded although no answer came back");
    };
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert!(begun.elapsed() < deadline + Duration::from_millis(500), "it took {:?}", begun.elapsed());
    link.pass().await;
    // The other registration keeps the lease alive, so only a removal can take the record away.
    eventually(stage.settle(), "the unconfirmed record to be gone for good", async || {
        if stage.is_stored("pay", "a").await { Err("it is stored") } else { Ok(()) }
    })
    .await;
    stays(stage.fixture.ttl(), "the record's absence", async || {
        if stage.is_stored("pay", "a").await { Err("it is stored") } else { Ok(()) }
    })
    .await;
}

/// R2: after an `Ok` the record is gone, a second call is `Ok` too, and the record never comes back.
pub async fn r02_deregistered_is_gone_and_stays_gone<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let _other = register(&backend, instance("pay", "other")).await;
    let registration = register(&backend, instance("pay", "a")).await;
    assert_eq!(registration.deregister().await.map_err(|e| e.to_string()), Ok(()));
    assert!(!stage.is_stored("pay", "a").await, "deregister returned before the record was gone");
    assert_eq!(registration.deregister().await.map_err(|e| e.to_string()), Ok(()));
    stays(stage.fixture.ttl() * 2, "the record's absence", async || {
        if stage.is_stored("pay", "a").await { Err("it came back") } else { Ok(()) }
    })
    .await;
    assert!(matches!(registration.state(), RegistrationState::Closed));
}

/// R2: without the store, `deregister` fails by its deadline; a second call tries for real.
pub async fn r02_deregister_ends_by_its_deadline_and_tries_again_for_real<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let _other = register(&backend, instance("pay", "other")).await;
    let registration = register(&backend, instance("pay", "a")).await;
    link.cut().await;
    let begun = Instant::now();
    let Err(error) = registration.deregister().await else { fail("deregister succeeded without the store") };
    assert!(begun.elapsed() < Duration::from_millis(5_500), "it took {:?}", begun.elapsed());
    assert!(error.is_retryable(), "{error}");
    link.pass().await;
    let again = registration.deregister_within(stage.settle()).await;
    assert_eq!(again.map_err(|e| e.to_string()), Ok(()));
    assert!(!stage.is_stored("pay", "a").await, "the second deregister did nothing");
}

/// R2: the record of a newer owner survives the former owner's deregistration.
pub async fn r02_deregister_never_removes_a_newer_owners_record<F: Fixture>(stage: Stage<F>) {
    let ((old, _), (new, _)) = (stage.handle().await, stage.handle().await);
    let former = register(&old, instance("pay", "a")).await;
    let _newer = register(&new, instance("pay", "a")).await;
    assert_eq!(former.deregister().await.map_err(|e| e.to_string()), Ok(()));
    assert!(stage.is_stored("pay", "a").await, "the newer owner's record was removed");
}

/// R2: a record that lost its lease by somebody's hand is removed all the same, or it would outlive its process for ever.
pub async fn r02_a_record_without_a_lease_is_removed_too<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let registration = register(&backend, instance("pay", "a")).await;
    stage.put(&[registration.instance()]).await;
    assert_eq!(registration.deregister().await.map_err(|e| e.to_string()), Ok(()));
    assert!(!stage.is_stored("pay", "a").await, "the record outlived its owner");
}

/// R3: a process that falls silent is gone from every set within its TTL and a second, and not much earlier.
pub async fn r03_a_dead_process_is_gone_within_its_ttl<F: Fixture>(stage: Stage<F>) {
    let ((dying, link), (living, _), (reader, _)) = (stage.handle().await, stage.handle().await, stage.handle().await);
    let _held = (register(&dying, instance("pay", "dead")).await, register(&living, instance("pay", "live")).await);
    let watch = reader.watch("pay");
    shows(&watch, SOON, &["dead", "live"]).await;
    link.cut().await;
    let begun = Instant::now();
    shows(&watch, stage.fixture.ttl() + Duration::from_secs(1), &["live"]).await;
    // A lease is renewed at a third of its TTL, so at least two thirds were left.
    assert!(begun.elapsed() > stage.fixture.ttl() / 2, "it was removed after {:?}", begun.elapsed());
}

/// R6: the same id registered by another process takes over without a gap, and the former owner says so.
pub async fn r06_a_new_registration_takes_over<F: Fixture>(stage: Stage<F>) {
    let ((old, _), (new, _), (reader, _)) = (stage.handle().await, stage.handle().await, stage.handle().await);
    let former = register(&old, instance("pay", "a")).await;
    let watch = reader.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    let newer = register(&new, change(instance("pay", "a"), "owner", "newer")).await;
    let listed_once = async || match watch.latest() {
        Some(snapshot) if ids(&snapshot) == ["a"] => Ok(()),
        other => Err(format!("{other:?}")),
    };
    // Longer than the former owner's lease: its end must not take the record with it, nor may it repair or renew it.
    stays(stage.settle(), "being listed once", listed_once).await;
    assert!(matches!(former.state(), RegistrationState::Superseded), "{:?}", former.state());
    let Err(error) = former.update(|i| i.weight(7)).await else { fail("the former owner could update") };
    assert_eq!(error.kind(), ErrorKind::Closed);
    drop(former);
    drop(old);
    stays(stage.fixture.ttl() * 2, "being listed once", listed_once).await;
    assert!(newer.state().is_registered());
    assert_eq!(watch.latest().and_then(|s| s.get("a")?.metadata("owner").map(str::to_owned)).as_deref(), Some("newer"));
}

/// R6, R2: after the newer owner has left, the record stays away: the former owner does not bring it back.
pub async fn r06_a_former_owner_does_not_return_after_the_newer_one<F: Fixture>(stage: Stage<F>) {
    let ((old, _), (new, _)) = (stage.handle().await, stage.handle().await);
    // It keeps the former owner's lease in use throughout.
    let _other = register(&old, instance("pay", "other")).await;
    let former = register(&old, instance("pay", "a")).await;
    let newer = register(&new, instance("pay", "a")).await;
    assert_eq!(newer.deregister().await.map_err(|e| e.to_string()), Ok(()));
    stays(stage.settle() + stage.fixture.ttl(), "the record's absence", async || {
        if stage.is_stored("pay", "a").await { Err("it came back") } else { Ok(()) }
    })
    .await;
    assert!(matches!(former.state(), RegistrationState::Superseded), "{:?}", former.state());
    // It can be registered anew, by anybody, the former owner's lease included, and is that one's own from then on.
    let again = register(&old, instance("pay", "a")).await;
    assert_eq!(again.update(|i| i.weight(7)).await.map_err(|e| e.to_string()), Ok(()));
    stage.fixture.delete_raw(&path("pay", "a")).await;
    eventually(stage.settle(), "the repair", async || {
        if stage.is_stored("pay", "a").await { Ok(()) } else { Err(again.state()) }
    })
    .await;
}

/// R6: the same id registered again on the same handle takes over as well.
pub async fn r06_a_second_registration_on_one_handle_takes_over<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let former = register(&backend, instance("pay", "a")).await;
    let newer = register(&backend, instance("pay", "a")).await;
    assert!(matches!(former.state(), RegistrationState::Superseded));
    drop(former);
    stays(stage.fixture.ttl(), "the newer record", async || {
        if stage.is_stored("pay", "a").await { Ok(()) } else { Err("it is gone") }
    })
    .await;
    assert!(newer.state().is_registered());
}

/// R7: every field changes in one modification, and the newest value is what is repaired.
pub async fn r07_an_update_is_one_modification_and_is_what_comes_back<F: Fixture>(stage: Stage<F>) {
    let ((backend, _), (reader, _)) = (stage.handle().await, stage.handle().await);
    let registration = register(&backend, instance("pay", "a")).await;
    let watch = reader.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    let before = stage.fixture.revision().await;
    let update = registration.update(|i| i.weight(7).zone("z").metadata("k", "v").state(State::Draining));
    assert_eq!(update.await.map_err(|e| e.to_string()), Ok(()));
    assert_eq!(stage.fixture.revision().await, before + 1, "an update is one write");
    let updated = async || {
        let snapshot = watch.latest().ok_or("no set")?;
        let a = snapshot.get("a").ok_or("no instance")?;
        let same = (a.weight(), a.zone(), a.metadata("k"), a.state()) == (7, Some("z"), Some("v"), State::Draining);
        if same { Ok(()) } else { Err("not updated") }
    };
    eventually(SOON, "the update", updated).await;
    stage.fixture.delete_raw(&path("pay", "a")).await;
    eventually(SOON, "the removal by hand", async || match watch.latest() {
        Some(snapshot) if snapshot.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    eventually(stage.settle(), "the repaired record to be the updated one", updated).await;
}

/// R8: twenty registrations and twenty watches share one pool of connections and one lease.
pub async fn r08_one_connection_and_one_lease<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let mut held = Vec::new();
    for n in 0..20 {
        let service = format!("service-{n}");
        held.push((register(&backend, instance(&service, "a")).await, backend.watch(&service)));
    }
    for (_, watch) in &held {
        shows(watch, SOON, &["a"]).await;
    }
    assert_eq!(stage.fixture.leases().await, 1);
    assert!((1..=stage.fixture.connections()).contains(&link.open()), "{} connections", link.open());
}

/// R9: draining is seen by watchers, lasts for the grace, and ends in deregistration.
pub async fn r09_drain_marks_waits_and_deregisters<F: Fixture>(stage: Stage<F>) {
    let ((backend, _), (reader, _)) = (stage.handle().await, stage.handle().await);
    let registration = register(&backend, instance("pay", "a")).await;
    let watch = reader.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    let (begun, grace) = (Instant::now(), Duration::from_millis(1_500));
    let (drained, ()) = tokio::join!(registration.drain(grace), async {
        eventually(grace, "the draining state", async || {
            let snapshot = watch.latest().ok_or("no set")?;
            let state = snapshot.get("a").ok_or("gone before the grace was over")?.state();
            if state == State::Draining { Ok(()) } else { Err("serving") }
        })
        .await;
    });
    assert_eq!(drained.map_err(|e| e.to_string()), Ok(()));
    assert!(begun.elapsed() >= grace, "the grace was cut short: {:?}", begun.elapsed());
    shows(&watch, SOON, &[]).await;
}

/// R10: dropping a registration removes its record, and dropping the last handle ends every task.
pub async fn r10_dropping_deregisters_and_ends_everything<F: Fixture>(stage: Stage<F>) {
    let (observer, _) = stage.handle().await;
    let watch = observer.watch("pay");
    let metrics = tokio::runtime::Handle::current().metrics();
    let (backend, link) = stage.handle().await;
    let kept = register(&backend, instance("pay", "kept")).await;
    let dropped = register(&backend, instance("pay", "dropped")).await;
    shows(&watch, SOON, &["dropped", "kept"]).await;
    drop(dropped);
    shows(&watch, SOON, &["kept"]).await;
    let own = backend.watch("pay");
    shows(&own, SOON, &["kept"]).await;
    drop(backend);
    // Registrations and watches are handles too: with them everything works on.
    shows(&own, SOON, &["kept"]).await;
    is_registered(&kept, SOON).await;
    let before = metrics.num_alive_tasks();
    drop((own, kept));
    shows(&watch, SOON, &[]).await;
    eventually(SOON, "the connection to be closed", async || if link.open() == 0 { Ok(()) } else { Err(link.open()) })
        .await;
    // Supervisor, keeper and feed at least have ended; what the store's link itself runs is gone with the connection.
    eventually(SOON, "the tasks to end", async || {
        let alive = metrics.num_alive_tasks();
        if alive + 3 <= before { Ok(()) } else { Err((before, alive)) }
    })
    .await;
    assert_eq!(stage.fixture.leases().await, 0, "the lease was not given up");
}

/// R10: closing a backend removes its records, gives up its lease and ends its watches, whoever still holds a handle.
pub async fn r10_close_ends_everything<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let registration = register(&backend, instance("pay", "a")).await;
    let mut watch = backend.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    assert_eq!(backend.close(SOON).await.map_err(|e| e.to_string()), Ok(()));
    assert!(!stage.is_stored("pay", "a").await);
    assert_eq!(stage.fixture.leases().await, 0);
    while watch.changed().await.is_some() {}
    assert!(matches!(registration.state(), RegistrationState::Closed));
    assert_eq!(registration.deregister().await.map_err(|e| e.to_string()), Ok(()));
    let Err(error) = backend.register(instance("pay", "b"), RegisterOptions::default()).await else {
        fail("a closed backend registered");
    };
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(backend.watch("pay").changed().await.is_none());
    assert_eq!(backend.close(SOON).await.map_err(|e| e.to_string()), Ok(()));
}

/// R11: registered, reconnecting since when and why, registered again, closed.
pub async fn r11_the_state_is_observable<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let registration = register(&backend, instance("pay", "a")).await;
    assert!(registration.state().is_registered());
    link.cut().await;
    let (since, cause) = eventually(SOON, "the outage to be seen", async || match registration.state() {
        RegistrationState::Reconnecting(since, cause) => Ok((since, cause)),
        state => Err(format!("{state:?}")),
    })
    .await;
    assert!(since.elapsed() < SOON && cause.is_retryable(), "{cause}");
    link.pass().await;
    is_registered(&registration, stage.settle()).await;
    assert_eq!(registration.deregister().await.map_err(|e| e.to_string()), Ok(()));
    assert!(matches!(registration.state(), RegistrationState::Closed));
}

/// R12: too large a record, and a TTL outside the store's bounds, are refused before anything is sent.
pub async fn r12_what_cannot_work_is_refused_before_it_is_sent<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let registration = register(&backend, instance("pay", "a")).await;
    let before = stage.fixture.revision().await;
    let limit = backend.capabilities().max_record;
    let large = change(instance("pay", "b"), "blob", &"x".repeat(limit));
    let Err(error) = backend.register(large, RegisterOptions::default()).await else { fail("too large was taken") };
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let Err(error) = registration.update(|i| i.metadata("blob", "x".repeat(limit))).await else { fail("it was taken") };
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let Err(error) = registration.update(|i| i.id("other")).await else { fail("an id changed") };
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let bounds = (backend.capabilities().min_ttl, backend.capabilities().max_ttl);
    let outside =
        [Duration::ZERO, bounds.0 - Duration::from_millis(1), bounds.1.saturating_add(Duration::from_secs(1))];
    for ttl in outside {
        let policy = crate::Policy { ttl, ..stage.policy() };
        match stage.fixture.open("", policy).await {
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
            Ok(_) => fail(&format!("a TTL of {ttl:?} was taken")),
        }
    }
    assert_eq!(stage.fixture.revision().await, before, "something was written");
    is_registered(&registration, SOON).await;
    // A record of exactly the limit is taken.
    let room = limit - crate::encode(&change(instance("pay", "b"), "blob", "")).len();
    let fitting = change(instance("pay", "b"), "blob", &"x".repeat(room));
    assert_eq!(crate::encode(&fitting).len(), limit);
    let _fitting = register(&backend, fitting).await;
}

fn change(instance: crate::Instance, name: &str, value: &str) -> crate::Instance {
    instance.to_builder().metadata(name, value).build().unwrap_or_else(|error| fail(&error.to_string()))
}
