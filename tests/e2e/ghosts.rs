//! Who was killed while one of two registries was down does not come back with it.

use std::sync::Arc;
use std::time::Duration;

use discovery_harness::{eventually, stays};
use discovery_kit::memory::MemoryStore;
use discovery_kit::multi::{Multi, MultiOptions};
use discovery_kit::{Backend, Discovery, Instance, Policy, RegisterOptions, Registration};
use futures_util::future::join_all;

use crate::calls::SETTLE;
use crate::registry::Registry;

/// As in [`Registry::url`].
const TTL: Duration = Duration::from_secs(3);

async fn register(backend: &Arc<dyn Backend>, id: &str) -> Registration {
    let instance = Instance::builder("greeter").id(id).endpoint("grpc://127.0.0.1:1").build().unwrap();
    backend.register(instance, RegisterOptions::default()).await.unwrap()
}

async fn w10_beside(registry: &Registry) {
    let mut policy = Policy::default();
    policy.ttl = TTL;
    let memory = MemoryStore::new();
    let (killed_on_memory, link) = memory.open("", policy).unwrap();
    let (killed, cable) = registry.handle("ghosts").await;
    let [other, caller] = [(); 2].map(|()| discovery_kit::connect(&registry.url("ghosts")).unwrap());
    let _registered = [
        register(&killed, "killed").await,
        register(&killed_on_memory, "killed").await,
        register(&other, "living").await,
        register(&memory.connect(), "living").await,
    ];
    // What is left between a TTL and the bound by default is left here.
    let away = TTL + (MultiOptions::default().away - Policy::default().ttl);
    let both = Multi::new(vec![caller, memory.connect()], MultiOptions::default().with_away(away)).unwrap();
    let watch = both.watch("greeter");
    let shows = async |ids: &[&str], live: bool| {
        eventually(SETTLE, &format!("{ids:?} beside {}", registry.name), async || {
            let set = watch.latest().ok_or("no set")?;
            let shown: Vec<_> = set.instances().iter().map(|instance| instance.id()).collect();
            if shown == ids && set.freshness().is_live() == live { Ok(()) } else { Err(format!("{set:?}")) }
        })
        .await;
    };
    shows(&["killed", "living"], true).await;
    registry.leave();
    shows(&["killed", "living"], false).await;
    cable.cut().await;
    link.cut();
    shows(&["living"], false).await;
    registry.come_back().await;
    shows(&["living"], true).await;
    // Its record still stands there, until the server ends a lease that began anew when the server started.
    let absent = || watch.latest().is_some_and(|set| set.get("killed").is_none() && set.get("living").is_some());
    stays(away + Duration::from_secs(3), &format!("its absence beside {}", registry.name), absent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w10_who_was_killed_during_an_outage_of_one_registry_does_not_come_back_with_it() {
    let real = Registry::real().await;
    join_all(real.iter().map(w10_beside)).await;
}
