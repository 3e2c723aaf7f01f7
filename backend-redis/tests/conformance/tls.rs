//! `rediss://` against a server that asks for certificates.

use std::time::Duration;

use discovery_core::conformance::{Link, eventually};
use discovery_core::{ErrorKind, Instance, Policy, RegisterOptions, RegistryUrl};
use discovery_harness::{Certificates, Proxy, Redis, RedisOptions};

use crate::fixture::{Wire, installed};

fn instance() -> Instance {
    Instance::builder("pay").id("a").endpoint("grpc://127.0.0.1:9000").build().unwrap()
}

async fn guarded() -> Option<(Redis, Certificates)> {
    if !installed() {
        return None;
    }
    let certificates = Certificates::new().unwrap();
    let server = Redis::start_with(RedisOptions::default().with_tls(&certificates)).await.unwrap();
    Some((server, certificates))
}

fn url(address: &str, ca: &Certificates, client: Option<&Certificates>) -> RegistryUrl {
    let mut text = format!("rediss://{address}?ca={}", ca.ca().display());
    if let Some((certificate, key)) = client.map(Certificates::client) {
        text += &format!("&cert={}&key={}", certificate.display(), key.display());
    }
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_certificates_on_both_sides() {
    let Some((server, certificates)) = guarded().await else { return };
    let backend =
        discovery_redis::connect(&url(&server.tls_socket_address().to_string(), &certificates, Some(&certificates)))
            .unwrap();
    let registration = backend.register(instance(), RegisterOptions::default()).await.unwrap();
    let set = backend.snapshot("pay", Duration::from_secs(3)).await.unwrap();
    assert_eq!(set.len(), 1);
    registration.deregister().await.unwrap();
}

/// A stranger's authority, a missing and a stranger's client certificate: each is said, typed, and not hammered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_wrong_certificates_are_said_and_not_hammered() {
    let Some((server, certificates)) = guarded().await else { return };
    let strangers = Certificates::new().unwrap();
    for (ca, client) in [(&strangers, Some(&certificates)), (&certificates, None), (&certificates, Some(&strangers))] {
        let proxy = Wire(Proxy::start(server.tls_socket_address()).await.unwrap());
        let backend = discovery_redis::open(&url(&proxy.0.address(), ca, client), Policy::default()).unwrap();
        let watch = backend.watch("pay");
        eventually(Duration::from_secs(10), "the reason", async || match watch.freshness().cause() {
            Some(cause) if cause.kind() == ErrorKind::Unauthenticated => Ok(()),
            _ => Err(watch.freshness()),
        })
        .await;
        let options = RegisterOptions::default().with_deadline(Duration::from_secs(6));
        assert!(backend.register(instance(), options).await.is_err());
        // Half the backoff's cap is the shortest wait between two of these.
        assert!(proxy.connects() <= 4, "{} attempts in some six seconds", proxy.connects());
    }
}

/// A rotated certificate is used by the next connection, without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_rotated_certificate_is_read_anew() {
    let Some((server, certificates)) = guarded().await else { return };
    let folder = Certificates::new().unwrap();
    let proxy = Wire(Proxy::start(server.tls_socket_address()).await.unwrap());
    let mut policy = Policy::default();
    policy.backoff = Duration::from_secs(1);
    let backend = discovery_redis::open(&url(&proxy.0.address(), &folder, Some(&folder)), policy).unwrap();
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
