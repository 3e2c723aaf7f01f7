//! TLS to a server that asks for certificates.

use std::{net::SocketAddr, time::Duration};

use discovery_core::{
    ErrorKind, Policy, RegisterOptions,
    conformance::{Link, eventually},
};

use super::{Subject, Wire, instance, refused, register};
use crate::Certificates;

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
    let pairs = [certificates.ca(), certificates.client().0, certificates.client().1];
    for (from, to) in pairs.iter().zip([folder.ca(), folder.client().0, folder.client().1]) {
        std::fs::copy(from, to).unwrap();
    }
    eventually(Duration::from_secs(10), "the right one to be used", async || {
        if watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
}
