//! Accounts and rights.

use std::time::Duration;

use discovery_core::conformance::Link;
use discovery_core::conformance::{eventually, stays};
use discovery_core::{ErrorKind, Policy, RegisterOptions, RegistryUrl};
use discovery_harness::Redis;
use discovery_harness::cases::{Wire, instance, refused, register, shows};

use crate::stage::{SETTLE, open, policy};

/// A server whose user `app` has the rights that the README lists, and whose user `default` is off.
async fn guarded() -> Option<Redis> {
    if !Redis::available().expect("Redis, which CI requires") {
        return None;
    }
    let server = Redis::start().await.expect("a started Redis");
    let readme = include_str!("../../README.md");
    let line =
        readme.lines().find_map(|line| line.trim().strip_prefix("`ACL SETUSER app ")).expect("the README's line");
    let rights: Vec<_> = line.trim_end_matches("`.").split(' ').collect();
    server.cli(&[&["ACL", "SETUSER", "app"], &rights[..]].concat()).await.expect("an account");
    server.cli(&["ACL", "SETUSER", "root", "on", ">root", "~*", "&*", "+@all"]).await.expect("an account");
    server.cli(&["ACL", "SETUSER", "default", "off"]).await.expect("no default account");
    Some(server)
}

async fn as_root(server: &Redis, command: &[&str]) {
    server.cli(&[&["--no-auth-warning", "--user", "root", "--pass", "root"], command].concat()).await.unwrap();
}

/// The documented rights are enough for everything: registering, renewing, watching, sweeping, listing, deregistering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_the_documented_rights_are_enough() {
    let Some(server) = guarded().await else { return };
    let backend = open(&format!("redis://app:secret@{}", server.address()));
    let (watch, names) = (backend.watch("pay"), backend.watch_services());
    let registration = register(&backend, "pay", "a").await;
    shows(&watch, SETTLE, &["a"]).await;
    stays(policy().ttl * 2, "everything", async || {
        let all = (registration.state(), watch.freshness(), names.freshness());
        if all.0.is_registered() && all.1.is_live() && all.2.is_live() { Ok(()) } else { Err(all) }
    })
    .await;
    assert!(names.latest().unwrap().names().contains("pay"));
    registration.deregister().await.unwrap();
    shows(&watch, SETTLE, &[]).await;
}

/// What is kept on disk says for which store and database it is, and nothing about who may read there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w11_databases_are_apart_on_the_disk_and_no_credential_reaches_it() {
    let Some(server) = guarded().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("sets");
    let connect = |rest: &str| {
        let url = format!("redis://{rest}&cache={}", cache.display());
        discovery_redis::connect(&url.parse().unwrap()).unwrap()
    };
    let address = server.address();
    let handles =
        [format!("app:secret@{address}?ttl=3s"), format!("root:root@{address}?ttl=3s&db=1")].map(|rest| connect(&rest));
    for (handle, id) in handles.iter().zip(["a", "b"]) {
        let _held = register(handle, "pay", id).await;
        let watch = handle.watch("pay");
        shows(&watch, SETTLE, &[id]).await;
        eventually(SETTLE, "the set on the disk", async || match handle.cache_status().unwrap() {
            status if status.written > 0 => Ok(()),
            status => Err(status),
        })
        .await;
    }
    let files: Vec<_> = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&address) && text.contains("pay"), "{text}");
        for secret in ["secret", "root", "app:"] {
            assert!(
                !text.contains(secret) && !file.display().to_string().contains(secret),
                "{}: {text}",
                file.display()
            );
        }
    }
}

/// A wrong password is a typed error at once, is not tried in a loop, and is never printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_a_wrong_password_is_said_and_not_hammered() {
    let Some(server) = guarded().await else { return };
    let proxy = Wire::to(server.socket_address()).await;
    for credentials in ["app:hunter2", "default:hunter2", "nobody:hunter2"] {
        let url: RegistryUrl = format!("redis://{credentials}@{}", proxy.0.address()).parse().unwrap();
        // The default backoff, which the bound belongs to.
        let mut policy = policy();
        policy.backoff = Policy::default().backoff;
        let backend = discovery_redis::open(&url, policy).unwrap();
        let before = proxy.connects();
        let watch = backend.watch("pay");
        let begun = tokio::time::Instant::now();
        let error = backend.register(instance("pay", "a"), RegisterOptions::default()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unauthenticated, false), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(error.message().contains("check user and password"), "{error}");
        assert!(!format!("{error:?} {url:?} {watch:?} {:?}", watch.freshness()).contains("hunter2"));
        refused(&watch, SETTLE, ErrorKind::Unauthenticated).await;
        // A connection is opened for each attempt.
        let attempts = || proxy.connects() - before;
        let few = async || if attempts() <= 5 { Ok(()) } else { Err(attempts()) };
        stays(Duration::from_secs(10), "the number of attempts", few).await;
    }
}

/// Missing rights are a typed error at once, for keys, for channels and for commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_a_missing_right_is_said_at_once() {
    let Some(server) = guarded().await else { return };
    for (prefix, right) in
        [("/elsewhere", ""), ("/discovery2", ""), ("", "resetchannels"), ("", "-publish"), ("", "-@write")]
    {
        if !right.is_empty() {
            as_root(&server, &["ACL", "SETUSER", "app", right]).await;
        }
        let backend = open(&format!("redis://app:secret@{}{prefix}", server.address()));
        let begun = tokio::time::Instant::now();
        let error = backend.register(instance("pay", "a"), RegisterOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{prefix}{right}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
    let backend = open(&format!("redis://app:secret@{}/elsewhere", server.address()));
    let watch = backend.watch("pay");
    refused(&watch, SETTLE, ErrorKind::PermissionDenied).await;
    assert!(watch.latest().is_none(), "a refusal was taken for a set");
}

/// A database needs a right of its own, which is named; one that the server does not have is a mistake in the URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_r12_a_database_needs_its_right() {
    let Some(server) = guarded().await else { return };
    let refused = async |database: u32| {
        let backend = open(&format!("redis://app:secret@{}?db={database}", server.address()));
        backend.register(instance("pay", "a"), RegisterOptions::default()).await.unwrap_err()
    };
    let error = refused(1).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.message().contains("+select"), "{error}");
    as_root(&server, &["ACL", "SETUSER", "app", "+select"]).await;
    let error = refused(99).await;
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.message().contains("check db"), "{error}");
    let backend = open(&format!("redis://app:secret@{}?db=1", server.address()));
    register(&backend, "pay", "a").await;
}

/// Whoever may write but not publish leaves nothing behind, and those who watch hear of no gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_w02_without_the_right_to_publish_nothing_is_written() {
    let Some(server) = guarded().await else { return };
    let root = open(&format!("redis://root:root@{}", server.address()));
    let _b = register(&root, "pay", "b").await;
    let mut watch = root.watch("pay");
    let before = shows(&watch, SETTLE, &["b"]).await;
    as_root(&server, &["ACL", "SETUSER", "app", "-publish"]).await;
    let app = open(&format!("redis://app:secret@{}", server.address()));
    for service in ["pay", "new"] {
        let error = app.register(instance(service, "a"), RegisterOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    let keys = ["--no-auth-warning", "--user", "root", "--pass", "root", "KEYS", "*new*"];
    assert_eq!(server.cli(&keys).await.unwrap().trim(), "", "something is left");
    let _c = register(&root, "pay", "c").await;
    let end = tokio::time::Instant::now() + SETTLE;
    let after = loop {
        let next = tokio::time::timeout_at(end, watch.changed()).await.expect("a change").unwrap();
        assert!(next.freshness().is_live(), "{:?}", next.freshness());
        if next.get("c").is_some() {
            break next;
        }
    };
    assert_eq!(after.revision(), before.revision() + 1);
}

/// The right to read is revoked while a watch is open: no set is emptied, and a real removal shows once it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f06_a_revoked_right_empties_nothing() {
    let Some(server) = guarded().await else { return };
    let reader = open(&format!("redis://app:secret@{}", server.address()));
    let writer = open(&format!("redis://root:root@{}", server.address()));
    let (a, _b) = (register(&writer, "pay", "a").await, register(&writer, "pay", "b").await);
    let watch = reader.watch("pay");
    shows(&watch, SETTLE, &["a", "b"]).await;
    as_root(&server, &["ACL", "SETUSER", "app", "-@read"]).await;
    // Nothing is cut: the watch itself finds out at the next deadline.
    refused(&watch, SETTLE, ErrorKind::PermissionDenied).await;
    assert_eq!(watch.latest().unwrap().len(), 2);
    as_root(&server, &["ACL", "SETUSER", "app", "+@read"]).await;
    a.deregister().await.unwrap();
    shows(&watch, SETTLE + Duration::from_secs(10), &["b"]).await;
}
