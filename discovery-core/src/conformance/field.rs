//! Faults that people hit in production with other frameworks, as recipes; each carries the number of its field case.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::stage::{eventually, fail, ids, instance, is_registered, path, register, shows, stays};
use super::{Fixture, Stage};
use crate::picker::RoundRobin;
use crate::{Backend, Balancer, Change, Context, ErrorKind, Outcome, RegistrationState};

const SOON: Duration = Duration::from_secs(3);

/// F01: away for longer than anybody's patience, the registration comes back on a new lease that is then renewed.
pub async fn f01_an_outage_of_a_minute_ends_in_a_renewed_registration<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let registration = register(&backend, instance("pay", "a")).await;
    link.cut().await;
    eventually(SOON, "the handle to be unhealthy", async || match registration.state() {
        RegistrationState::Reconnecting(..) => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await;
    stays(Duration::from_secs(60), "the outage", async || {
        if registration.state().is_registered() { Err("it says it is registered") } else { Ok(()) }
    })
    .await;
    assert!(!stage.is_stored("pay", "a").await, "the lease outlived a minute without renewal");
    link.pass().await;
    eventually(stage.settle(), "the record to be back", async || {
        if stage.is_stored("pay", "a").await { Ok(()) } else { Err(registration.state()) }
    })
    .await;
    is_registered(&registration, SOON).await;
    stays(stage.fixture.ttl() * 3, "the record", async || {
        if stage.is_stored("pay", "a").await { Ok(()) } else { Err("it is gone") }
    })
    .await;
}

/// F03: a watch that is there before any provider sees each that comes, also after all traces were deleted.
pub async fn f03_a_consumer_that_was_there_first_sees_every_provider<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    let watch = backend.watch("never-seen");
    shows(&watch, Duration::from_secs(2), &[]).await;
    for _ in 0..3 {
        let registration = register(&backend, instance("never-seen", "a")).await;
        shows(&watch, SOON, &["a"]).await;
        assert_eq!(registration.deregister().await.map_err(|e| e.to_string()), Ok(()));
        shows(&watch, SOON, &[]).await;
    }
}

/// F04: a network that dies without a word is noticed, replaced, and what happened meanwhile is found.
pub async fn f04_a_network_that_falls_silent_is_replaced<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    stage.put(&[instance("pay", "a"), instance("pay", "b")]).await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a", "b"]).await;
    let connects = link.connects();
    link.freeze().await;
    stage.fixture.delete_raw(&path("pay", "a")).await;
    stage.put(&[instance("pay", "c")]).await;
    eventually(Duration::from_secs(15), "a new connection", async || {
        if link.connects() > connects { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
    // The old connection stays silent for ever; nothing must depend on it.
    shows(&watch, stage.settle(), &["b", "c"]).await;
}

/// F04: a stopped server is noticed, nothing is lost, and it is used again when it goes on.
pub async fn f04_a_stopped_server_is_noticed<F: Fixture>(stage: Stage<F>) {
    let (backend, _) = stage.handle().await;
    stage.put(&[instance("pay", "a")]).await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    stage.fixture.freeze_store(true).await;
    eventually(Duration::from_secs(15), "the set to be stale", async || {
        if watch.freshness().is_stale() { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
    assert_eq!(watch.latest().map(|s| ids(&s)), Some(vec!["a".to_owned()]));
    stage.fixture.freeze_store(false).await;
    stage.put(&[instance("pay", "b")]).await;
    let live = shows(&watch, stage.settle(), &["a", "b"]).await;
    assert!(live.freshness().is_live());
}

/// F05: when the last instance leaves, picks fail at once with a reason, and succeed again when one comes.
pub async fn f05_the_last_instance_leaves<F: Fixture>(stage: Stage<F>) {
    let ((backend, _), (reader, _)) = (stage.handle().await, stage.handle().await);
    let first = register(&backend, instance("pay", "a")).await;
    let second = register(&backend, instance("pay", "b")).await;
    let watch = reader.watch("pay");
    let balancer = Balancer::new(watch.clone(), RoundRobin::new());
    shows(&watch, SOON, &["a", "b"]).await;
    for registration in [first, second] {
        assert_eq!(registration.deregister().await.map_err(|e| e.to_string()), Ok(()));
    }
    shows(&watch, SOON, &[]).await;
    let error = eventually(SOON, "picks to fail", async || match balancer.pick(&Context::default()) {
        Err(error) => Ok(error),
        Ok(pick) => Err(pick.instance().id().to_owned()),
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::NoInstance);
    assert!(error.message().contains("no instance is registered"), "{error}");
    let begun = Instant::now();
    assert!(balancer.pick(&Context::default()).is_err());
    assert!(begun.elapsed() < Duration::from_millis(50));
    let _again = register(&backend, instance("pay", "a")).await;
    match balancer.pick_within(&Context::default(), SOON).await {
        Ok(pick) => pick.finish(Outcome::Success),
        Err(error) => fail(&error.to_string()),
    }
}

/// F06: a read that is refused is not an empty set.
pub async fn f06_a_refused_read_empties_nothing<F: Fixture>(stage: Stage<F>) {
    let (backend, link) = stage.handle().await;
    let all = [instance("pay", "a"), instance("pay", "b"), instance("pay", "c")];
    stage.put(&all).await;
    let watch = backend.watch("pay");
    let first = shows(&watch, SOON, &["a", "b", "c"]).await;
    stage.fixture.deny_reads(true).await;
    link.cut().await;
    eventually(SOON, "stale", async || if watch.freshness().is_stale() { Ok(()) } else { Err(watch.freshness()) })
        .await;
    link.pass().await;
    eventually(stage.settle(), "the refusal to be named", async || match watch.freshness().cause() {
        Some(cause) if matches!(cause.kind(), ErrorKind::PermissionDenied | ErrorKind::Unauthenticated) => Ok(()),
        _ => Err(watch.freshness()),
    })
    .await;
    stays(Duration::from_secs(10), "the set", async || match watch.latest() {
        Some(now) if now.changes_since(&first).is_empty() && now.freshness().is_stale() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    stage.fixture.deny_reads(false).await;
    stage.fixture.delete_raw(&path("pay", "b")).await;
    let after = shows(&watch, stage.settle() + stage.policy().backoff, &["a", "c"]).await;
    assert!(matches!(after.changes_since(&first).as_slice(), [Change::Removed(_)]));
}

/// F08: IPv6 hosts and their ports survive the store unchanged, with and without a zone.
pub async fn f08_ipv6_addresses_survive_the_store<F: Fixture>(stage: Stage<F>) {
    let ((backend, _), (reader, _)) = (stage.handle().await, stage.handle().await);
    let watch = reader.watch("pay");
    let addresses =
        [("2001:db8::3c", 443), ("::1", 9_000), ("fe80::1%eth0", 80), ("10.0.0.5", 1), ("db.example", 65_535)];
    let mut held = Vec::new();
    for (n, (host, port)) in addresses.iter().enumerate() {
        let endpoint = crate::Endpoint::new("grpc", host, *port).unwrap_or_else(|error| fail(&error.to_string()));
        let with_address = instance("pay", &n.to_string()).to_builder().endpoints([endpoint]).build();
        held.push(register(&backend, with_address.unwrap_or_else(|error| fail(&error.to_string()))).await);
    }
    let snapshot = shows(&watch, SOON, &["0", "1", "2", "3", "4"]).await;
    let found: Vec<_> =
        snapshot.instances().iter().map(|i| (i.endpoints()[0].host(), i.endpoints()[0].port())).collect();
    assert_eq!(found, addresses);
}

/// F15: ending is bounded whatever the store does, says so, and is made up for.
pub async fn f15_ending_is_bounded_and_made_up_for<F: Fixture>(stage: Stage<F>) {
    let bound = Duration::from_millis(5_500);
    let (backend, link) = stage.handle().await;
    let _other = register(&backend, instance("pay", "other")).await;
    // (a) refused, (d) and the store returns.
    let registration = register(&backend, instance("pay", "a")).await;
    link.cut().await;
    let begun = Instant::now();
    assert!(registration.deregister().await.is_err());
    assert!(begun.elapsed() < bound);
    drop(registration);
    link.pass().await;
    let gone = async |what: &str, limit| {
        eventually(limit, what, async || if stage.is_stored("pay", "a").await { Err("stored") } else { Ok(()) }).await;
    };
    gone("the record to be removed after the return", stage.fixture.ttl() + Duration::from_secs(2)).await;
    // (c) replies that come a second and a half late.
    let patient = crate::Policy { timeout: crate::Policy::default().timeout, ..stage.policy() };
    let (slow, slow_link) = stage.handle_with("", patient).await;
    let registration = register(&slow, instance("pay", "slow")).await;
    slow_link.delay(Duration::from_millis(750)).await;
    assert_eq!(registration.deregister().await.map_err(|e| e.to_string()), Ok(()));
    assert!(!stage.is_stored("pay", "slow").await, "Ok came before the record was gone");
    // (b) a stopped server.
    let registration = register(&backend, instance("pay", "a")).await;
    stage.fixture.freeze_store(true).await;
    let begun = Instant::now();
    assert!(registration.deregister().await.is_err());
    assert!(begun.elapsed() < bound);
    let begun = Instant::now();
    assert!(backend.close(Duration::from_secs(2)).await.is_err());
    assert!(begun.elapsed() < Duration::from_millis(2_500));
    stage.fixture.freeze_store(false).await;
    gone("the record to expire", stage.fixture.ttl() + SOON).await;
}

/// F18: two processes on one host are two instances, one process is one, and a quick restart is listed once throughout.
pub async fn f18_identities_neither_collide_nor_double<F: Fixture>(stage: Stage<F>) {
    let at = |port: u16| {
        let builder = crate::Instance::builder("pay").endpoint(&format!("grpc://10.0.0.5:{port}"));
        builder.build().unwrap_or_else(|error| fail(&error.to_string()))
    };
    let ((one, link), (two, _), (reader, _)) = (stage.handle().await, stage.handle().await, stage.handle().await);
    let watch = reader.watch("pay");
    let _first = register(&one, at(9_001)).await;
    let second = register(&two, at(9_002)).await;
    shows(&watch, SOON, &["10.0.0.5:9001", "10.0.0.5:9002"]).await;
    assert_eq!(second.deregister().await.map_err(|e| e.to_string()), Ok(()));
    shows(&watch, SOON, &["10.0.0.5:9001"]).await;
    let _twice = register(&one, at(9_001)).await;
    // The process dies, and is started again on the same address at once.
    link.cut().await;
    let (restarted, _): (Arc<dyn Backend>, _) = stage.handle().await;
    let registration = register(&restarted, at(9_001)).await;
    stays(stage.fixture.ttl() * 2, "being listed once", async || match watch.latest() {
        Some(snapshot) if ids(&snapshot) == ["10.0.0.5:9001"] => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(registration.state().is_registered());
}

/// F20: a hundred watches opened during churn, over a slow link and with constant reconciliation, end at the store's set.
pub async fn f20_watches_opened_during_churn_end_at_the_stores_set<F: Fixture>(stage: Stage<F>) {
    let policy = crate::Policy { reconcile: Duration::from_millis(100), ..stage.policy() };
    let churn = Duration::from_secs(30);
    let mut rng = fastrand::Rng::with_seed(20);
    let (mut handles, mut watches, mut present) = (Vec::new(), Vec::new(), [false; 5]);
    let end = Instant::now() + churn;
    while Instant::now() < end {
        if handles.len() < 10 {
            let (backend, link) = stage.handle_with("", policy.clone()).await;
            link.delay(Duration::from_millis(rng.u64(0..100))).await;
            handles.push((backend, link));
        }
        if watches.len() < 100 {
            watches.push(handles[rng.usize(..handles.len())].0.watch("pay"));
        }
        let at = rng.usize(..5);
        present[at] = !present[at];
        if present[at] {
            stage.put(&[instance("pay", &at.to_string())]).await;
        } else {
            stage.fixture.delete_raw(&path("pay", &at.to_string())).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(20..80))).await;
    }
    assert_eq!(watches.len(), 100, "the churn was too short to open all watches");
    let expected: Vec<_> = (0..5).filter(|at| present[*at]).map(|at| at.to_string()).collect();
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    // A watch behind a slow link may show an older set that happens to be the last one as well.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for watch in &watches {
        shows(watch, Duration::from_secs(1), &expected).await;
    }
    let settled: Vec<_> = watches.iter().map(|watch| watch.latest()).collect();
    stays(Duration::from_secs(2), "the sets", async || {
        let moved = watches.iter().zip(&settled).find_map(|(watch, before)| match (watch.latest(), before) {
            (Some(now), Some(before)) => Some(now.changes_since(before)).filter(|changes| !changes.is_empty()),
            _ => Some(Vec::new()),
        });
        moved.map_or(Ok(()), |changes| Err(format!("{changes:?}")))
    })
    .await;
}
