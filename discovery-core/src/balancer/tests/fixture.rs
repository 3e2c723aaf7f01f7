//! What all tests of the balancer start from: services on the in-memory backend, and what can be asked of a balancer.

use super::*;

pub(super) fn instance(id: &str, weight: u32) -> Instance {
    Instance::builder("pay").id(id).endpoint("grpc://h:1").weight(weight).build().unwrap()
}

pub(super) async fn registered(backend: &Arc<dyn Backend>, instance: Instance) -> Registration {
    backend.register(instance, Default::default()).await.unwrap()
}

pub(super) fn opened() -> (MemoryStore, Arc<dyn Backend>, MemoryLink) {
    let store = MemoryStore::new();
    let (backend, link) = store.open("", Policy::default()).unwrap();
    (store, backend, link)
}

/// Waits until the balancer knows exactly these ids.
pub(super) async fn knows(balancer: &Balancer, ids: &[&str]) {
    let mut built = balancer.inner.shared.built.subscribe();
    let known = || balancer.members().iter().map(|m| m.instance().id().to_owned()).collect::<Vec<_>>();
    tokio::time::timeout(Duration::from_secs(60), async {
        while known() != ids {
            built.changed().await.unwrap();
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{ids:?} expected, {:?} known", known()));
}

/// Registers these and returns a balancer that knows them, from its first set on.
pub(super) async fn balanced(
    instances: impl IntoIterator<Item = Instance>,
    factory: impl PickerFactory,
    options: BalancerOptions,
) -> (Arc<dyn Backend>, Vec<Registration>, Balancer) {
    let (_, backend, _) = opened();
    let mut held = Vec::new();
    for instance in instances {
        held.push(registered(&backend, instance).await);
    }
    let mut ids: Vec<_> = held.iter().map(|held| held.instance().id().to_owned()).collect();
    ids.sort();
    let balancer = Balancer::with_options(backend.watch("pay"), factory, options);
    while !balancer.freshness().is_live() {
        balancer.selections().changed().await;
    }
    knows(&balancer, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    (backend, held, balancer)
}

/// Waits until the selection heeds every change of health.
pub(super) async fn heeded(balancer: &Balancer) {
    let shared = &balancer.inner.shared;
    let mut built = shared.built.subscribe();
    while shared.selection.load().health != shared.bell.rings() {
        built.changed().await.unwrap();
    }
}

/// Picks until this instance has it, and says how it went.
pub(super) fn ends_at(balancer: &Balancer, id: &str, outcome: Outcome) {
    let pick = (0..10_000).map(|_| balancer.pick(&Context::default()).unwrap()).find(|pick| pick.instance().id() == id);
    pick.unwrap_or_else(|| panic!("{id} is never picked")).finish(outcome);
}

pub(super) fn standing(balancer: &Balancer, id: &str) -> String {
    let all = balancer.explain();
    all.iter().find(|standing| standing.instance().id() == id).unwrap().to_string()
}

pub(super) fn counts(balancer: &Balancer, picks: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..picks {
        let pick = balancer.pick(&Context::default()).unwrap();
        *counts.entry(pick.instance().id().to_owned()).or_insert(0) += 1;
        pick.finish(Outcome::Success);
    }
    counts
}
