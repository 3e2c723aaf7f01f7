//! `rediss://` against a server that asks for certificates.

use std::time::Duration;

use discovery_harness::{Certificates, Redis, RedisOptions, cases};

use crate::fixture::REDIS;

async fn guarded() -> Option<(Redis, Certificates)> {
    if !Redis::available().expect("Redis, which CI requires") {
        return None;
    }
    let certificates = Certificates::new().unwrap();
    let server = Redis::start_with(RedisOptions::default().with_tls(&certificates)).await.unwrap();
    Some((server, certificates))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_certificates_on_both_sides() {
    let Some((server, certificates)) = guarded().await else { return };
    cases::certificates_on_both_sides(REDIS, server.tls_socket_address(), &certificates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_wrong_certificates_are_said_and_not_hammered() {
    let Some((server, certificates)) = guarded().await else { return };
    // Half the backoff's cap is the shortest wait between two of these.
    let (limit, attempts) = (Duration::from_secs(10), 4);
    cases::wrong_certificates_are_said(REDIS, server.tls_socket_address(), &certificates, limit, attempts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_rotated_certificate_is_read_anew() {
    let Some((server, certificates)) = guarded().await else { return };
    cases::a_rotated_certificate_is_read_anew(REDIS, server.tls_socket_address(), &certificates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_a_new_authority_is_trusted_without_a_restart() {
    let Some((server, certificates)) = guarded().await else { return };
    let address = server.tls_socket_address();
    cases::a_new_authority_is_trusted_without_a_restart(REDIS, &server, address, &certificates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_files_that_are_broken_at_a_reconnect_heal() {
    let Some((server, certificates)) = guarded().await else { return };
    cases::files_that_are_broken_at_a_reconnect_heal(REDIS, server.tls_socket_address(), &certificates).await;
}
