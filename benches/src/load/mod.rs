//! Load discipline (L1–L4), measured: what one process with a thousand registrations and two hundred watches asks of its store and of its
//! machine, while nothing happens, while the store is away, when it returns, and when something changes.

mod away;
mod change;
mod knocks;
mod lines;
mod whole;

use std::time::{Duration, Instant};

use discovery_harness::Proxy;

use crate::Result;
use crate::meter::Meter;
use crate::process::Process;
use crate::store::{Store, each};

const REGISTRATIONS: usize = 1_000;
const WATCHES: usize = 200;
const IDLE: Duration = Duration::from_secs(30);
/// How long anything may take that has to happen.
const LIMIT: Duration = Duration::from_secs(90);

pub(crate) async fn run(words: &[&str]) -> Result<()> {
    each(words, async |store| {
        let mut scene = Scene { proxy: Proxy::start(store.address()).await?, store };
        play(&mut scene).await
    })
    .await
}

/// A store, and the only way to it.
struct Scene {
    store: Store,
    proxy: Proxy,
}

async fn play(scene: &mut Scene) -> Result<()> {
    let mut meter = Meter::of(&scene.store).await?;
    let before = meter.read().await?;
    let url = scene.url("load");
    let process = Process::start(&["hold", &url, "one", &REGISTRATIONS.to_string(), &WATCHES.to_string()])?;
    process.says("holds", &all_hold(), LIMIT).await?;
    let first = Cost { requests: meter.read().await?.since(before).requests, bytes: scene.bytes() };
    scene.print("connections", scene.proxy.open(), "connections");

    let (before, cpu, begun) = (meter.read().await?, process.cpu()?, Instant::now());
    tokio::time::sleep(IDLE).await;
    let seconds = begun.elapsed().as_secs_f64();
    let idle = meter.read().await?.since(before);
    scene.print("idle_requests", format!("{:.1}", idle.requests as f64 / seconds), "requests a second");
    scene.print("idle_writes", format!("{:.1}", idle.writes as f64 / seconds), "writes a second");
    scene.print_share("idle_cpu", process.cpu()? - cpu, begun.elapsed());

    away::run(scene, &process, &first, away::Port::Answers).await?;
    away::run(scene, &process, &first, away::Port::Refuses).await?;
    drop(process);
    change::run(scene).await?;
    whole::run(scene).await
}

/// What the process says while everything holds: each service that it watches has one instance.
fn all_hold() -> String {
    format!("{REGISTRATIONS} {WATCHES} {WATCHES}")
}

/// What something cost the store and the wire.
#[derive(Clone, Copy, Debug)]
struct Cost {
    requests: u64,
    bytes: u64,
}

impl Scene {
    /// With the default policy.
    fn url(&self, prefix: &str) -> String {
        format!("{}://{}/{prefix}", self.store.name(), self.proxy.address())
    }

    /// Past the proxy, for what is not measured.
    fn direct(&self, prefix: &str) -> String {
        format!("{}://{}/{prefix}", self.store.name(), self.store.address())
    }

    /// What went over the wire so far.
    fn bytes(&self) -> u64 {
        self.proxy.bytes_up() + self.proxy.bytes_down()
    }

    fn print(&self, figure: &str, value: impl std::fmt::Display, unit: &str) {
        println!("load.{}.{figure} {value} {unit}", self.store.name());
    }

    /// The share of a core that was used.
    fn print_share(&self, figure: &str, used: Duration, of: Duration) {
        let percent = 100.0 * used.as_secs_f64() / of.as_secs_f64();
        self.print(figure, format!("{percent:.2}"), "percent of a core, must be below 5");
    }
}
