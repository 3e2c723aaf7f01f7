//! TLS to a server that asks for certificates.

use std::{net::SocketAddr, path::Path, time::Duration};

use discovery_core::{
    ErrorKind, Policy, RegisterOptions,
    conformance::{Link, eventually, stays},
};

use super::{Subject, Wire, holds, instance, refused, register, rights::Witness, shows};
use crate::{Certificates, Program, Server};

/// A server's address, whom to trust there, and as whom to come.
fn rest(address: impl std::fmt::Display, ca: &Certificates, client: Option<&Certificates>) -> String {
    let mut text = format!("{address}?ca={}", ca.ca().display());
    if let Some((certificate, key)) = client.map(Certificates::client) {
        text += &format!("&cert={}&key={}", certificate.display(), key.display());
    }
    text
}

/// R1: certificates on both sides.
pub async fn certificates_on_both_sides(subject: Subject, server: SocketAddr, certificates: &Certificates) {
    let backend = subject.connect_tls(rest(server, certificates, Some(certificates)));
    let registration = register(&backend, "pay", "a").await;
    let set = backend.snapshot("pay", Duration::from_secs(3)).await.unwrap();
    assert_eq!(set.len(), 1);
    registration.deregister().await.unwrap();
}

/// L1: a stranger's authority, a missing and a stranger's client certificate: each is said within `limit`, typed, and not hammered: until
/// some five seconds later there were `attempts` at the most.
pub async fn wrong_certificates_are_said(
    subject: Subject,
    server: SocketAddr,
    certificates: &Certificates,
    limit: Duration,
    attempts: u64,
) {
    let strangers = Certificates::new().unwrap();
    for (ca, client) in [(&strangers, Some(certificates)), (certificates, None), (certificates, Some(&strangers))] {
        let wire = Wire::to(server).await;
        let backend = subject.open_tls(rest(wire.0.address(), ca, client), Policy::default());
        let watch = backend.watch("pay");
        refused(&watch, limit, ErrorKind::Unauthenticated).await;
        let error = backend.register(instance("pay", "a"), RegisterOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(wire.connects() <= attempts, "{} attempts", wire.connects());
    }
}

/// R4: a rotated certificate is used by the next connection, without a restart.
pub async fn a_rotated_certificate_is_read_anew(subject: Subject, server: SocketAddr, certificates: &Certificates) {
    let folder = Certificates::new().unwrap();
    let mut policy = Policy::default();
    policy.backoff = Duration::from_secs(1);
    let backend = subject.open_tls(rest(server, &folder, Some(&folder)), policy);
    let watch = backend.watch("pay");
    eventually(Duration::from_secs(10), "the wrong one to be refused", async || {
        if watch.freshness().cause().is_some() { Ok(()) } else { Err(()) }
    })
    .await;
    folder.replace_by(certificates).unwrap();
    eventually(Duration::from_secs(10), "the right one to be used", async || {
        if watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
}

/// R4, W4: the server gets a certificate of a new authority while the old connection lives on, restarts with it, and the handle's files
/// follow later. The set stays, nobody hammers the server, and all heals without a restart.
pub async fn a_new_authority_is_trusted_without_a_restart<P: Program>(
    subject: Subject,
    server: &Server<P>,
    address: SocketAddr,
    certificates: &Certificates,
) {
    let (ours, next) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    ours.replace_by(certificates).unwrap();
    let wire = Wire::to(address).await;
    let mut policy = Policy::default();
    policy.backoff = Duration::from_secs(4);
    let backend = subject.open_tls(rest(wire.0.address(), &ours, Some(&ours)), policy);
    let registration = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    let witness = Witness::of(&backend, "pay");

    certificates.replace_by(&next).unwrap();
    stays(Duration::from_secs(2), "the connection", async || {
        if watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
    server.kill().unwrap();
    server.start_again().await.unwrap();
    refused(&watch, HEALED, ErrorKind::Unauthenticated).await;
    let before = wire.connects();
    stays(Duration::from_secs(5), "the set, and few attempts", async || match watch.latest() {
        Some(set) if set.len() == 1 && set.freshness().is_stale() && wire.connects() - before <= 8 => Ok(()),
        other => Err(format!("{other:?}, {} attempts", wire.connects() - before)),
    })
    .await;

    ours.replace_by(&next).unwrap();
    shows(&watch, HEALED, &["a"]).await;
    holds(&registration, HEALED).await;
    witness.swears();
}

/// R4, W4: at a reconnect a file is missing, half written, or of somebody else: the set stays, the cause is said without what stands in the
/// file, nobody hammers the server, and all heals once the files are whole again.
pub async fn files_that_are_broken_at_a_reconnect_heal(
    subject: Subject,
    server: SocketAddr,
    certificates: &Certificates,
) {
    let ours = Certificates::new().unwrap();
    ours.replace_by(certificates).unwrap();
    let strangers = Certificates::new().unwrap();
    let (ca, (certificate, key)) = (ours.ca(), ours.client());
    let half = |path: &Path| {
        let whole = std::fs::read(path).unwrap();
        std::fs::write(path, &whole[..whole.len() / 2]).unwrap();
    };
    let wire = Wire::to(server).await;
    let mut policy = Policy::default();
    policy.backoff = Duration::from_secs(1);
    policy.probe = Duration::from_secs(1);
    let backend = subject.open_tls(rest(wire.0.address(), &ours, Some(&ours)), policy);
    let registration = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    shows(&watch, SOON, &["a"]).await;
    let witness = Witness::of(&backend, "pay");
    let damages: [(&str, &dyn Fn()); 7] = [
        ("no authority", &|| std::fs::remove_file(&ca).unwrap()),
        ("half an authority", &|| half(&ca)),
        ("an empty certificate", &|| std::fs::write(&certificate, "").unwrap()),
        ("half a certificate", &|| half(&certificate)),
        ("no key", &|| std::fs::remove_file(&key).unwrap()),
        ("half a key", &|| half(&key)),
        ("a stranger's key", &|| _ = std::fs::copy(strangers.client().1, &key).unwrap()),
    ];
    for (what, damage) in damages {
        let secret = std::fs::read_to_string(&key).unwrap();
        damage();
        wire.cut().await;
        eventually(SOON, what, async || if watch.freshness().is_stale() { Ok(()) } else { Err(watch.freshness()) })
            .await;
        wire.pass().await;
        // A client that brings a broken connection back by itself does so with what it has read before.
        eventually(HEALED, what, async || match watch.freshness().cause().map(|cause| cause.kind()) {
            Some(ErrorKind::InvalidInput | ErrorKind::Unauthenticated) | None => Ok(()),
            _ => Err(watch.freshness()),
        })
        .await;
        let said = format!("{:?} {:#?} {:?}", watch.freshness(), watch.freshness(), registration.state());
        let leak = secret.lines().filter(|line| !line.starts_with('-')).find(|line| said.contains(line));
        assert_eq!(leak, None, "{what}: {said}");
        println!("{what}: {}", watch.freshness());
        let before = wire.connects();
        stays(Duration::from_secs(2), what, async || match watch.latest() {
            Some(set) if set.len() == 1 && wire.connects() - before <= 12 => Ok(()),
            other => Err(format!("{other:?}, {} attempts", wire.connects() - before)),
        })
        .await;
        ours.replace_by(certificates).unwrap();
        shows(&watch, HEALED, &["a"]).await;
        holds(&registration, HEALED).await;
    }
    witness.swears();
}

const SOON: Duration = Duration::from_secs(10);
/// The longest wait of ZooKeeper's client between two tries, the longest backoff, and a busy machine.
const HEALED: Duration = Duration::from_secs(40);
