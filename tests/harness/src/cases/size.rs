//! The size to plan for.

use std::{net::SocketAddr, time::Duration};

use discovery_core::{
    Instance,
    conformance::{Fixture, eventually},
};
use tokio::{task::JoinSet, time::Instant};

use super::{Subject, instance, register};

/// An instance with a record that is somewhat larger than this.
pub fn large(id: &str, bytes: usize) -> Instance {
    instance("pay", id).to_builder().metadata("padding", "x".repeat(bytes)).build().unwrap()
}

/// L2: a thousand registrations and ten thousand watched services on one handle survive a restart of the store without a write.
pub async fn ten_thousand_services_survive_a_restart(subject: Subject, fixture: &impl Fixture, server: SocketAddr) {
    let backend = subject.connect(format!("{server}?ttl=30s&backoff=2s"));
    let begun = Instant::now();
    let mut registering = JoinSet::new();
    for n in 0..1_000 {
        let backend = backend.clone();
        registering.spawn(async move { register(&backend, &format!("s{n}"), "a").await });
    }
    let held = registering.join_all().await;
    let registered = begun.elapsed();
    let watches: Vec<_> = (0..10_000).map(|n| backend.watch(&format!("s{n}"))).collect();
    for watch in &watches {
        watch.ready(Duration::from_secs(60)).await.unwrap();
    }
    println!("1,000 registrations in {registered:?}, then 10,000 sets in {:?}", begun.elapsed() - registered);
    let revision = fixture.revision().await;
    fixture.restart().await;
    let begun = Instant::now();
    eventually(Duration::from_secs(60), "everything to hold again", async || {
        let live = watches.iter().filter(|watch| watch.freshness().is_live()).count();
        let registered = held.iter().filter(|registration| registration.state().is_registered()).count();
        if (live, registered) == (10_000, 1_000) { Ok(()) } else { Err((live, registered)) }
    })
    .await;
    println!("everything holds again {:?} after the restart", begun.elapsed());
    assert_eq!(fixture.revision().await, revision, "something that survived was written");
    assert!(watches.iter().take(1_000).all(|watch| watch.latest().is_some_and(|set| set.len() == 1)));
}
