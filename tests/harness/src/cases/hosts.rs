//! Several hosts, of which one does not work.

use std::{net::SocketAddr, time::Duration};

use discovery_core::{
    Policy, RegisterOptions,
    conformance::{Fixture, Link, eventually},
};

use super::{Subject, Wire, holds, instance, register, shows};
use crate::free_port;

/// L1: the first host refuses, and no request dies of it, neither the first nor the hundredth.
pub async fn a_first_host_that_refuses_costs_no_request(subject: Subject, server: SocketAddr) {
    let dead = free_port().unwrap();
    let backend = subject.connect(format!("{},{server}", dead.address()));
    for n in 0..100 {
        let options = RegisterOptions::default().with_deadline(Duration::from_secs(3));
        backend.register(instance("pay", &n.to_string()), options).await.unwrap().deregister().await.unwrap();
    }
}

/// W12: the host in use becomes a black hole. The other one takes over within the documented bound, with the same lease or session.
///
/// Returns which of the two hosts of the URL was in use.
pub async fn a_host_that_falls_silent_is_left(subject: Subject, fixture: &impl Fixture, server: SocketAddr) -> usize {
    let wires = [Wire::to(server).await, Wire::to(server).await];
    let hosts = format!("{},{}", wires[0].0.address(), wires[1].0.address());
    let backend = subject.open(hosts, Policy::default());
    let registration = register(&backend, "pay", "a").await;
    let watch = backend.watch("pay");
    shows(&watch, Duration::from_secs(3), &["a"]).await;
    let revision = fixture.revision().await;
    let first = usize::from(wires[0].open() == 0);
    let (used, other) = (&wires[first], &wires[1 - first]);
    assert_eq!(other.connects(), 0, "one host is kept while it works");
    // Connections that are open and new ones fall silent.
    used.0.freeze().await.unwrap();
    eventually(Duration::from_secs(15), "the other host to be used", async || {
        if other.connects() > 0 && watch.freshness().is_live() { Ok(()) } else { Err(watch.freshness()) }
    })
    .await;
    holds(&registration, Duration::from_secs(5)).await;
    assert_eq!(fixture.revision().await, revision, "the record survived, and still something was written");
    first
}
