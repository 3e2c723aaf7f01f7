//! `etcds://` against a server that asks for certificates.

use std::time::Duration;

use discovery_harness::{Certificates, Etcd, EtcdOptions, cases};

use crate::fixture::ETCD;

async fn guarded() -> Option<(Etcd, Certificates)> {
    if !Etcd::available().expect("etcd, which CI requires") {
        return None;
    }
    let certificates = Certificates::new().unwrap();
    let server = Etcd::start_with(EtcdOptions::default().with_tls(&certificates)).await.unwrap();
    Some((server, certificates))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_certificates_on_both_sides() {
    let Some((server, certificates)) = guarded().await else { return };
    cases::certificates_on_both_sides(ETCD, server.socket_address(), &certificates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_wrong_certificates_are_said_and_not_hammered() {
    let Some((server, certificates)) = guarded().await else { return };
    // Half the backoff's cap is the shortest wait between two of these.
    let (limit, attempts) = (Duration::from_secs(10), 4);
    cases::wrong_certificates_are_said(ETCD, server.socket_address(), &certificates, limit, attempts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_rotated_certificate_is_read_anew() {
    let Some((server, certificates)) = guarded().await else { return };
    cases::a_rotated_certificate_is_read_anew(ETCD, server.socket_address(), &certificates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_a_new_authority_is_trusted_without_a_restart() {
    let Some((server, certificates)) = guarded().await else { return };
    let address = server.socket_address();
    cases::a_new_authority_is_trusted_without_a_restart(ETCD, &server, address, &certificates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_files_that_are_broken_at_a_reconnect_heal() {
    let Some((server, certificates)) = guarded().await else { return };
    cases::files_that_are_broken_at_a_reconnect_heal(ETCD, server.socket_address(), &certificates).await;
}
