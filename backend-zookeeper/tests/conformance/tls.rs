//! `zookeepers://` against a server that asks for certificates.

use std::time::Duration;

use discovery_harness::{Certificates, ZooKeeper, ZooKeeperOptions, cases};

use crate::fixture::ZOOKEEPER;
use crate::stage::has;

async fn guarded() -> Option<(ZooKeeper, Certificates)> {
    if !ZooKeeper::available().expect("ZooKeeper, which CI requires") {
        return None;
    }
    if !has("TLS", (3, 5)).await {
        return None;
    }
    let certificates = Certificates::new().unwrap();
    let options = ZooKeeperOptions::default().with_tls(&certificates).unwrap();
    Some((ZooKeeper::start_with(options).await.unwrap(), certificates))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r01_certificates_on_both_sides() {
    let Some((server, certificates)) = guarded().await else { return };
    cases::certificates_on_both_sides(ZOOKEEPER, server.socket_address(), &certificates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_wrong_certificates_are_said_and_not_hammered() {
    let Some((server, certificates)) = guarded().await else { return };
    // A connection that is reset may take the reason with it; the next one to tell it is four seconds later, and until the reason is
    // known the tries are those of an outage.
    let (limit, attempts) = (Duration::from_secs(20), 15);
    cases::wrong_certificates_are_said(ZOOKEEPER, server.socket_address(), &certificates, limit, attempts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_a_rotated_certificate_is_read_anew() {
    let Some((server, certificates)) = guarded().await else { return };
    cases::a_rotated_certificate_is_read_anew(ZOOKEEPER, server.socket_address(), &certificates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_a_new_authority_is_trusted_without_a_restart() {
    let Some((server, certificates)) = guarded().await else { return };
    let address = server.socket_address();
    cases::a_new_authority_is_trusted_without_a_restart(ZOOKEEPER, &server, address, &certificates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_files_that_are_broken_at_a_reconnect_heal() {
    let Some((server, certificates)) = guarded().await else { return };
    cases::files_that_are_broken_at_a_reconnect_heal(ZOOKEEPER, server.socket_address(), &certificates).await;
}
