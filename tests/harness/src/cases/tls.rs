//! TLS to a server that asks for certificates.

use std::{net::SocketAddr, time::Duration};

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

const SOON: Duration = Duration::from_secs(10);
/// The longest wait of ZooKeeper's client between two tries, the longest backoff, and a busy machine.
const HEALED: Duration = Duration::from_secs(40);
