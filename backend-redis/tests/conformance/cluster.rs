//! What happens to one master, or one slot, of a Cluster disturbs no service that lies elsewhere.

use std::sync::Arc;
use std::time::Duration;

use discovery_core::conformance::eventually;
use discovery_core::{Backend, Registration, RegistryUrl, Watch};
use discovery_harness::cases::{self, holds, register, shows};
use discovery_harness::{Redis, RedisCluster};
use tokio::time::{interval, sleep};

/// Longer than in the other tests, so that the deadlines drawn from it are longer than a busy machine's pauses: these tests look at every
/// moment.
const TTL: Duration = Duration::from_secs(9);
const SETTLE: Duration = cases::settle(TTL);
/// Longer than a TTL, the servers' own timeouts, and all deadlines of a request.
const LONG: Duration = Duration::from_secs(12);

fn open(url: &str) -> Arc<dyn Backend> {
    let url: RegistryUrl = url.parse().unwrap();
    discovery_redis::open(&url, cases::policy(TTL)).unwrap()
}

/// A service with an instance, registered through one handle and watched through another.
struct Service {
    name: String,
    registration: Registration,
    watch: Watch,
}

/// Three masters, and services on all of them.
struct Scene {
    cluster: RedisCluster,
    handles: [Arc<dyn Backend>; 2],
    /// Those on the master that something happens to, and the others.
    here: Vec<Service>,
    elsewhere: Vec<Service>,
}

impl Scene {
    /// Whatever happens will happen to the master of the service `s0`.
    async fn start() -> Option<Self> {
        if !Redis::available().unwrap() {
            return None;
        }
        let cluster = RedisCluster::start().await.unwrap();
        let url = format!("redis+cluster://{}", cluster.addresses());
        let mut scene = Self { handles: [open(&url), open(&url)], here: Vec::new(), elsewhere: Vec::new(), cluster };
        let troubled = scene.master("s0").await.address();
        for n in 0..9 {
            let name = format!("s{n}");
            let registration = register(&scene.handles[0], &name, "a").await;
            let watch = scene.handles[1].watch(&name);
            shows(&watch, SETTLE, &["a"]).await;
            let is_here = scene.master(&name).await.address() == troubled;
            let services = if is_here { &mut scene.here } else { &mut scene.elsewhere };
            services.push(Service { name, registration, watch });
        }
        assert!(!scene.elsewhere.is_empty());
        Some(scene)
    }

    async fn master(&self, service: &str) -> &Redis {
        self.cluster.master_of(&format!("{{/discovery/{service}}}")).await.unwrap()
    }

    /// Sees to it that nothing happens to the others, at no moment, while something happens.
    async fn undisturbed<T>(&self, services: &[Service], happening: impl Future<Output = T>) -> T {
        let looking = async {
            let mut often = interval(Duration::from_millis(5));
            loop {
                often.tick().await;
                for Service { name, registration, watch } in services {
                    let freshness = watch.freshness();
                    assert!(freshness.is_live(), "the set of {name} is {freshness:?}");
                    assert!(registration.state().is_registered(), "{name} is {:?}", registration.state());
                }
            }
        };
        tokio::select! {
            done = happening => done,
            () = looking => unreachable!("it never ends"),
        }
    }

    async fn heal(&self) {
        for Service { registration, watch, .. } in self.here.iter().chain(&self.elsewhere) {
            shows(watch, SETTLE + LONG, &["a"]).await;
            holds(registration, SETTLE).await;
        }
    }
}

async fn is_troubled(service: &Service) {
    eventually(SETTLE, "the outage to be said", async || {
        let Service { registration, watch, .. } = service;
        let said = watch.freshness().is_stale() && !registration.state().is_registered();
        if said { Ok(()) } else { Err((watch.freshness(), registration.state())) }
    })
    .await;
    assert_eq!(service.watch.latest().unwrap().len(), 1, "the outage emptied a set");
}

/// A master that is stopped accepts connections and answers nothing. It has no replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w04_w12_a_silent_master_disturbs_no_other() {
    let Some(scene) = Scene::start().await else { return };
    let silent = scene.master("s0").await;
    scene
        .undisturbed(&scene.elsewhere, async {
            silent.freeze().unwrap();
            for service in &scene.here {
                is_troubled(service).await;
            }
            // New ones are taken as well.
            let other = &scene.elsewhere[0];
            let late = register(&scene.handles[0], &other.name, "late").await;
            shows(&other.watch, SETTLE, &["a", "late"]).await;
            sleep(LONG).await;
            late.deregister().await.unwrap();
            shows(&other.watch, SETTLE, &["a"]).await;
            silent.thaw().unwrap();
            for service in &scene.here {
                shows(&service.watch, SETTLE + LONG, &["a"]).await;
            }
        })
        .await;
    scene.heal().await;
}

/// While a master is missing, what is deleted by hand on another one is repaired, and each registration tells its own state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_r11_a_missing_master_keeps_no_other_from_repair() {
    let Some(scene) = Scene::start().await else { return };
    let (lost, other) = (scene.master("s0").await, &scene.elsewhere[0]);
    scene
        .undisturbed(&scene.elsewhere, async {
            lost.kill().unwrap();
            for service in &scene.here {
                is_troubled(service).await;
            }
        })
        .await;
    let key = format!("{{/discovery/{}}}/a", other.name);
    let healthy = scene.master(&other.name).await;
    healthy.cli(&["DEL", &key]).await.unwrap();
    eventually(TTL * 2, "the record to be back", async || {
        let found = healthy.cli(&["EXISTS", &key]).await.unwrap();
        if found.trim() == "1" && other.registration.state().is_registered() { Ok(()) } else { Err(found) }
    })
    .await;
    shows(&other.watch, SETTLE, &["a"]).await;
    assert!(!scene.here[0].registration.state().is_registered(), "{:?}", scene.here[0].registration.state());
    lost.start_again().await.unwrap();
    scene.heal().await;
}

/// A slot on its way from one master to another is served by neither. That is the matter of its own services alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r04_w04_a_slot_in_migration_disturbs_no_other() {
    let Some(scene) = Scene::start().await else { return };
    let (from, to) = (scene.master("s0").await, scene.master(&scene.elsewhere[0].name).await);
    let id = async |server: &Redis| server.cli(&["CLUSTER", "MYID"]).await.unwrap().trim().to_owned();
    let (from_id, to_id) = (id(from).await, id(to).await);
    let slot = from.cli(&["CLUSTER", "KEYSLOT", "{/discovery/s0}"]).await.unwrap().trim().to_owned();
    let set = async |server: &Redis, words: &[&str]| {
        server.cli(&[&["CLUSTER", "SETSLOT", &slot], words].concat()).await.unwrap();
    };
    // The service in the slot, and those in other slots of the same master.
    let (moving, staying) = scene.here.split_first().unwrap();
    for finished in [false, true] {
        let happening = async {
            set(to, &["IMPORTING", &from_id]).await;
            set(from, &["MIGRATING", &to_id]).await;
            is_troubled(moving).await;
            sleep(LONG).await;
            if finished {
                let port = to.socket_address().port().to_string();
                let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]).await.unwrap();
                let head = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
                let keys: Vec<_> = keys.lines().filter(|key| !key.is_empty()).collect();
                if !keys.is_empty() {
                    from.cli(&[&head[..], &keys].concat()).await.unwrap();
                }
                for server in [to, from] {
                    set(server, &["NODE", &to_id]).await;
                }
            } else {
                for server in [to, from] {
                    set(server, &["STABLE"]).await;
                }
            }
            shows(&moving.watch, SETTLE + LONG, &["a"]).await;
            holds(&moving.registration, SETTLE).await;
        };
        scene.undisturbed(&scene.elsewhere, scene.undisturbed(staying, happening)).await;
    }
    assert_eq!(scene.master("s0").await.address(), to.address());
}
