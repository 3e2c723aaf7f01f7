//! Accounts with least rights, and passwords that change.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use discovery_core::{
    Backend, ErrorKind, RegisterOptions,
    conformance::{Link, eventually, stays},
};
use tokio::task::JoinHandle;

use super::{Subject, Wire, holds, instance, policy, refused, register, settle, shows};

/// Looks whether a set is ever empty once it was not.
#[derive(Debug)]
pub(super) struct Witness {
    /// The smallest set that was seen.
    least: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Witness {
    /// Begins with a set that has somebody.
    pub(super) fn of(backend: &Arc<dyn Backend>, service: &str) -> Self {
        let (least, mut watch) = (Arc::new(AtomicUsize::new(usize::MAX)), backend.watch(service));
        let seen = least.clone();
        let task = tokio::spawn(async move {
            while let Some(set) = watch.changed().await {
                seen.fetch_min(set.len(), Ordering::Relaxed);
            }
        });
        Self { least, task }
    }

    /// Fails if it was, and if nothing was seen.
    pub(super) fn swears(self) {
        self.task.abort();
        let least = self.least.load(Ordering::Relaxed);
        assert!((1..usize::MAX).contains(&least), "the set was emptied, or never seen: {least}");
    }
}

/// What an operator does to the account of a handle.
#[async_trait]
pub trait Operator: Send + Sync {
    /// Gives the account another password, and lets the former one go.
    async fn change_password(&self, password: &str);
}

/// R4, W4: the password of a handle is changed at the store while it is connected, and in its file later. The set stays, nobody hammers
/// the store, and all heals without a restart.
pub async fn a_rotated_password_is_read_anew(
    subject: Subject,
    server: SocketAddr,
    user: &str,
    operator: &impl Operator,
    ttl: Duration,
) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "old-secret\n").unwrap();
    let mut policy = policy(ttl);
    // What is refused is tried again after half of it to all of it.
    policy.backoff = Duration::from_secs(4);
    let settle = settle(ttl) + policy.backoff;
    let wire = Wire::to(server).await;
    let rest = |address: String| format!("{user}@{address}?password_file={}", file.display());
    let backend = subject.open(rest(wire.0.address()), policy.clone());
    let registration = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    shows(&watch, settle, &["a"]).await;
    let witness = Witness::of(&backend, "pay");

    operator.change_password("new-secret").await;
    wire.cut().await;
    eventually(settle, "the loss", async || if watch.freshness().is_stale() { Ok(()) } else { Err(watch.freshness()) })
        .await;
    wire.pass().await;
    eventually(settle, "the refusal to be named", async || match watch.freshness().cause().map(|cause| cause.kind()) {
        Some(ErrorKind::PermissionDenied | ErrorKind::Unauthenticated) => Ok(()),
        _ => Err(watch.freshness()),
    })
    .await;
    let before = wire.connects();
    stays(Duration::from_secs(10), "the set, and few attempts", async || match watch.latest() {
        // One in two seconds, and the second connection of a store that has two.
        Some(set) if set.len() == 1 && set.freshness().is_stale() && wire.connects() - before <= 12 => Ok(()),
        other => Err(format!("{other:?}, {} attempts", wire.connects() - before)),
    })
    .await;

    let next = folder.path().join("next");
    std::fs::write(&next, "new-secret\n").unwrap();
    std::fs::rename(next, &file).unwrap();
    shows(&watch, settle, &["a"]).await;
    holds(&registration, settle).await;
    // Who comes with the new password alone sees what was registered with the old one.
    let late = subject.open(rest(server.to_string()), policy);
    let second = register(&late, "pay", "b").await;
    shows(&late.watch("pay"), settle, &["a", "b"]).await;
    shows(&watch, settle, &["a", "b"]).await;
    witness.swears();
    for registration in [registration, second] {
        registration.deregister().await.unwrap();
    }
}

/// R1, R3: what `docs/rights.md` grants is enough for a process that registers `pay` and one that only discovers, and no more than that.
pub async fn the_recipes_are_enough_and_least(subject: Subject, server: SocketAddr, options: &str, ttl: Duration) {
    let (policy, settle) = (policy(ttl), settle(ttl));
    let wire = Wire::to(server).await;
    let registrar = subject.open(format!("registrar:registrar-secret@{}{options}", wire.0.address()), policy.clone());
    let reader = subject.open(format!("reader:reader-secret@{server}"), policy.clone());
    let (watch, names) = (reader.watch("pay"), reader.watch_services());
    let (first, second) = (register(&registrar, "pay", "a").await, register(&registrar, "pay", "b").await);
    shows(&watch, settle, &["a", "b"]).await;
    first.update(|change| change.weight(7)).await.unwrap();
    eventually(settle, "the update", async || match watch.latest().and_then(|set| set.get("a").cloned()) {
        Some(a) if a.weight() == 7 => Ok(()),
        other => Err(other),
    })
    .await;
    eventually(settle, "the service to be listed", async || match names.latest() {
        Some(all) if all.names().contains("pay") => Ok(()),
        other => Err(other),
    })
    .await;
    // A takeover by another process, and everything over several renewals and comparisons.
    let other = subject.open(format!("registrar:registrar-secret@{server}{options}"), policy.clone());
    let third = register(&other, "pay", "b").await;
    eventually(settle, "the former owner to learn it", async || {
        if second.state().is_registered() { Err(second.state()) } else { Ok(()) }
    })
    .await;
    stays(ttl * 2, "everything", async || {
        let all = (first.state(), third.state(), watch.freshness(), names.freshness());
        let well = all.0.is_registered() && all.1.is_registered() && all.2.is_live() && all.3.is_live();
        if well { Ok(()) } else { Err(all) }
    })
    .await;
    third.deregister().await.unwrap();
    shows(&watch, settle, &["a"]).await;
    // The process dies, and nobody but the reader is there to see it.
    wire.cut().await;
    shows(&watch, settle, &[]).await;

    for (backend, service) in [(&reader, "pay"), (&other, "orders")] {
        let error = backend.register(instance(service, "x"), RegisterOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{service}: {error}");
    }
    refused(&other.watch("orders"), settle, ErrorKind::PermissionDenied).await;
    // What was refused is seen by nobody.
    stays(Duration::from_secs(2), "the empty set", async || match watch.latest() {
        Some(set) if set.is_empty() && set.freshness().is_live() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}
