//! Accounts and rights (F14).

use std::time::Duration;

use discovery_core::conformance::{Fixture, Link, eventually, stays};
use discovery_core::{ErrorKind, Policy, RegisterOptions, RegistryUrl};
use discovery_harness::cases::{self, Wire, instance, refused, register};
use discovery_harness::{Etcd, EtcdOptions};

use crate::fixture::{ETCD, EtcdFixture};

/// Short, so that what expires does so soon.
const TTL: Duration = Duration::from_secs(3);
const SETTLE: Duration = cases::settle(TTL);

fn policy() -> Policy {
    cases::policy(TTL)
}

/// A server with accounts whose tokens live for three seconds: `app` may use the default prefix.
async fn guarded() -> Option<Etcd> {
    guarded_by(&["--auth-token-ttl", "3"]).await
}

async fn guarded_by(arguments: &[&str]) -> Option<Etcd> {
    if !Etcd::available().expect("etcd, which CI requires") {
        return None;
    }
    let options = EtcdOptions::default().with_args(arguments);
    let server = Etcd::start_with(options).await.expect("a started etcd");
    for command in [
        "user add root:root-secret",
        "user grant-role root root",
        "role add app",
        "role grant-permission app --prefix=true readwrite /discovery/",
        "user add app:app-secret",
        "user grant-role app app",
        "auth enable",
    ] {
        let words: Vec<_> = command.split(' ').collect();
        server.ctl(&words).await.expect("an account");
    }
    Some(server)
}

async fn as_root(server: &Etcd, command: &str) -> String {
    let words: Vec<_> = "--user root:root-secret".split(' ').chain(command.split(' ')).collect();
    server.ctl(&words).await.expect("a command of root's")
}

async fn revoke_all_leases(server: &Etcd) {
    for lease in as_root(server, "lease list").await.lines().skip(1) {
        as_root(server, &format!("lease revoke {lease}")).await;
    }
}

/// A token that expired while everything was idle stops nothing: neither repairs, nor registrations, nor watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_an_expired_token_is_renewed() {
    let Some(server) = guarded().await else { return };
    let backend = ETCD.open(format!("app:app-secret@{}", server.address()), policy());
    let first = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    let idle = tokio::time::Instant::now() + Duration::from_secs(10);
    for round in 0..2 {
        let left = (idle + Duration::from_secs(10 * round)).saturating_duration_since(tokio::time::Instant::now());
        stays(left, "the first", async || if first.state().is_registered() { Ok(()) } else { Err(first.state()) })
            .await;
        revoke_all_leases(&server).await;
        let id = format!("late-{round}");
        let second = register(&backend, "pay", &id).await;
        eventually(SETTLE, "both to be registered", async || match watch.latest() {
            Some(set)
                if set.get("a").is_some()
                    && set.get(&id).is_some()
                    && set.len() == 2
                    && set.freshness().is_live()
                    // A watch may see a record before its writer hears of it.
                    && first.state().is_registered() =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}, {:?}, {:?}", first.state(), second.state())),
        })
        .await;
        // A change of the accounts makes every token stale at once.
        as_root(&server, &format!("user add other-{round}:x")).await;
        second.deregister().await.unwrap();
    }
}

/// A server whose tokens expire however much they are used (JWT), after four seconds, and the folder of its key.
async fn guarded_by_jwt() -> Option<(Etcd, tempfile::TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    let token = format!("jwt,sign-method=HS256,priv-key={},ttl=4s", key.display());
    Some((guarded_by(&["--auth-token", &token]).await?, folder))
}

/// Tokens expire again and again while a registration is renewed and a set is compared: nothing is lost, no set is emptied, and leases that
/// end at last are replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_r04_w04_tokens_that_expire_in_use_cost_nothing() {
    let Some((server, _folder)) = guarded_by_jwt().await else { return };
    let proxy = Wire::to(server.socket_address()).await;
    let mut policy = policy();
    policy.reconcile = Duration::from_secs(1);
    let backend = ETCD.open(format!("app:app-secret@{}", proxy.0.address()), policy);
    let registration = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    let first = cases::shows(&watch, SETTLE, &["a"]).await;
    // Three lifetimes of a token.
    stays(Duration::from_secs(12), "the set and the registration", async || match watch.latest() {
        Some(set) if set.changes_since(&first).is_empty() && registration.state().is_registered() => Ok(()),
        other => Err(format!("{other:?}, {:?}", registration.state())),
    })
    .await;
    assert!(proxy.connects() <= 10, "{} connections", proxy.connects());
    registration.update(|change| change.weight(7)).await.unwrap();
    revoke_all_leases(&server).await;
    eventually(SETTLE, "the record to be back", async || match watch.latest() {
        Some(set) if set.get("a").is_some_and(|a| a.weight() == 7) && registration.state().is_registered() => Ok(()),
        other => Err(format!("{other:?}, {:?}", registration.state())),
    })
    .await;
    registration.deregister().await.unwrap();
    cases::shows(&watch, SETTLE, &[]).await;
}

/// A watch that opens after the token expired, beside one that was open before, is alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_a_watch_opened_after_the_token_expired_is_alive() {
    let Some((server, _folder)) = guarded_by_jwt().await else { return };
    // Reconciliation would mend it, late.
    let mut policy = policy();
    policy.reconcile = Duration::from_secs(3_600);
    let backend = ETCD.open(format!("app:app-secret@{}", server.address()), policy);
    let first = backend.watch("pay");
    first.ready(SETTLE).await.unwrap();
    // The token ends after four seconds.
    let live = async || if first.freshness().is_live() { Ok(()) } else { Err(first.freshness()) };
    stays(Duration::from_secs(6), "the watch", live).await;
    let second = backend.watch("late");
    second.ready(SETTLE).await.unwrap();
    let registration = register(&backend, "late", "a").await;
    let shows = async |count: usize| {
        eventually(SETTLE, "the late service", async || match second.latest() {
            Some(set) if set.len() == count => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    };
    shows(1).await;
    registration.deregister().await.unwrap();
    shows(0).await;
    let pay = register(&backend, "pay", "a").await;
    eventually(SETTLE, "the first service", async || if first.latest().unwrap().len() == 1 { Ok(()) } else { Err(()) })
        .await;
    assert!(pay.state().is_registered());
}

/// A wrong password is a typed error at once, is not tried in a loop, and is never printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f14_a_wrong_password_is_said_and_not_hammered() {
    let Some(server) = guarded().await else { return };
    let proxy = Wire::to(server.socket_address()).await;
    let url: RegistryUrl = format!("etcd://app:hunter2@{}", proxy.0.address()).parse().unwrap();
    // The default backoff, which the bound belongs to.
    let mut policy = policy();
    policy.backoff = Policy::default().backoff;
    let backend = discovery_etcd::open(&url, policy).unwrap();
    let watch = backend.watch("pay");
    let begun = tokio::time::Instant::now();
    let error = backend.register(instance("pay", "a"), RegisterOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unauthenticated, false), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5) && error.message().contains("authentication failed"), "{error}");
    assert!(!format!("{error:?} {backend:?} {watch:?}", backend = url).contains("hunter2"));
    refused(&watch, SETTLE, ErrorKind::Unauthenticated).await;
    // A connection is opened for each authentication.
    let few = async || if proxy.connects() <= 10 { Ok(()) } else { Err(proxy.connects()) };
    stays(Duration::from_secs(30), "the number of attempts", few).await;
}

/// The role's right to read is revoked: no set is emptied, and a real removal shows once it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f06_a_revoked_role_empties_nothing() {
    let Some(server) = guarded().await else { return };
    let proxy = Wire::to(server.socket_address()).await;
    let reader = ETCD.open(format!("app:app-secret@{}", proxy.0.address()), policy());
    let writer = ETCD.open(format!("root:root-secret@{}", server.address()), policy());
    let mut held = Vec::new();
    for id in ["a", "b", "c"] {
        held.push(register(&writer, "pay", id).await);
    }
    let watch = reader.watch("pay");
    assert_eq!(watch.ready(SETTLE).await.unwrap().len(), 3);
    as_root(&server, "role revoke-permission app /discovery/ --prefix").await;
    proxy.cut().await;
    eventually(SETTLE, "the outage", async || if watch.freshness().is_stale() { Ok(()) } else { Err(()) }).await;
    proxy.pass().await;
    refused(&watch, SETTLE, ErrorKind::PermissionDenied).await;
    assert_eq!(watch.latest().unwrap().len(), 3);
    as_root(&server, "role grant-permission app --prefix=true readwrite /discovery/").await;
    held.remove(1).deregister().await.unwrap();
    eventually(SETTLE, "the real removal", async || match watch.latest() {
        Some(set) if set.len() == 2 && set.get("b").is_none() && set.freshness().is_live() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// Missing rights are a typed error at once, and nothing is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_a_missing_right_is_said_at_once() {
    let Some(server) = guarded().await else { return };
    let backend = ETCD.open(format!("app:app-secret@{}/elsewhere", server.address()), policy());
    let begun = tokio::time::Instant::now();
    let error = backend.register(instance("pay", "a"), RegisterOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(
        backend.watch("pay").ready(Duration::from_secs(2)).await.unwrap_err().kind(),
        ErrorKind::DeadlineExceeded
    );
}

/// The suite's way to take rights away and give them back really does both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fixture_takes_rights_away() {
    let Some(fixture) = EtcdFixture::start().await else { return };
    fixture.deny_reads(true).await;
    assert!(fixture.client().await.kv_client().get("/", None).await.is_err());
    fixture.deny_reads(false).await;
    assert!(fixture.client().await.kv_client().get("/", None).await.is_ok());
}
