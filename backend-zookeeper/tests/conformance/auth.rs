//! Users and rights.

use std::time::Duration;

use discovery_core::conformance::{Fixture, Link, eventually};
use discovery_core::{ErrorKind, RegisterOptions, RegistryUrl};
use discovery_harness::cases::{Wire, refused, shows};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use crate::fixture::ZooKeeperFixture;
use crate::stage::{SETTLE, SOON, instance, policy};

async fn through_proxy(fixture: &ZooKeeperFixture, credentials: &str) -> (RegistryUrl, Wire) {
    let wire = Wire::to(fixture.server.socket_address()).await;
    (format!("zk://{credentials}{}", wire.0.address()).parse().unwrap(), wire)
}

/// What a user creates is that user's alone, and stays usable over reconnects and expired sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_a_users_records_are_the_users_alone() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let (url, wire) = through_proxy(&fixture, "app:app-secret@").await;
    let backend = discovery_zookeeper::open(&url, policy()).unwrap();
    let registration = backend.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
    let raw = fixture.raw().await;
    assert!(raw.0.list_children("/discovery/pay").await.is_err(), "everybody may list what the user created");
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    wire.cut().await;
    eventually(SOON, "stale", async || if watch.freshness().is_stale() { Ok(()) } else { Err(()) }).await;
    wire.pass().await;
    eventually(SETTLE, "live", async || if watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) })
        .await;
    let second = backend.register(instance("b", 2), RegisterOptions::default()).await.unwrap();
    raw.0.auth("digest", b"app:app-secret").await.unwrap();
    let (_, stat) = raw.0.get_data("/discovery/pay/a-0000000000").await.unwrap();
    while raw.0.check_stat("/discovery/pay/a-0000000000").await.unwrap().is_some() {
        let _ = fixture.server.end_session(stat.ephemeral_owner).await;
    }
    eventually(SETTLE, "both to hold again", async || {
        let states = (registration.state(), second.state());
        if states.0.is_registered() && states.1.is_registered() { Ok(()) } else { Err(states) }
    })
    .await;
    shows(&watch, SETTLE, &["a", "b"]).await;
}

/// A wrong password is a typed error at once, is not tried in a loop, and is never printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_a_wrong_password_is_said_and_not_hammered() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let (url, _right) = through_proxy(&fixture, "app:app-secret@").await;
    let owner = discovery_zookeeper::open(&url, policy()).unwrap();
    let _registration = owner.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
    for credentials in ["app:hunter2@", ""] {
        let (url, wire) = through_proxy(&fixture, credentials).await;
        // The default backoff, which the bound belongs to.
        let mut policy = policy();
        policy.backoff = discovery_core::Policy::default().backoff;
        let backend = discovery_zookeeper::open(&url, policy).unwrap();
        let watch = backend.watch("pay");
        let begun = tokio::time::Instant::now();
        let error = backend.register(instance("b", 2), RegisterOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(begun.elapsed() < SOON && error.message().contains("password"), "{error}");
        assert!(!format!("{error:?} {url:?} {watch:?}").contains("hunter2"));
        refused(&watch, SETTLE, ErrorKind::PermissionDenied).await;
        let before = wire.received();
        tokio::time::sleep(Duration::from_secs(10)).await;
        // A probe a second, and a try of the watch every five seconds at most; a busy machine may cost a reconnect.
        let received = wire.received() - before;
        assert!(wire.connects() <= 3 && received < 3_000, "{} connections, {received} bytes", wire.connects());
    }
}

/// Missing rights to create are a typed error at once; an id that is a stranger's is not taken, and the stranger's record counts on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r06_what_a_stranger_holds_is_not_taken() {
    let Some(fixture) = ZooKeeperFixture::start().await else { return };
    let raw = fixture.raw().await;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    raw.0.mkdir("/discovery/pay", &anyone).await.unwrap();
    let (url, _one) = through_proxy(&fixture, "one:x@").await;
    let one = discovery_zookeeper::open(&url, policy()).unwrap();
    let registration = one.register(instance("a", 1), RegisterOptions::default()).await.unwrap();
    let watch = one.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    let (url, _two) = through_proxy(&fixture, "two:x@").await;
    let two = discovery_zookeeper::open(&url, policy()).unwrap();
    let error = two.register(instance("a", 2), RegisterOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(raw.0.list_children("/discovery/pay").await.unwrap(), ["a-0000000000"]);
    assert!(registration.state().is_registered());
    let few = Permission::READ | Permission::ADMIN;
    raw.0.set_acl("/discovery/pay", &[Acl::new(few, AuthId::anyone())], None).await.unwrap();
    let begun = tokio::time::Instant::now();
    let error = two.register(instance("b", 2), RegisterOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(begun.elapsed() < SOON);
    drop(registration);
}
