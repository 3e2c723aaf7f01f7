//! A change of one of a thousand instances against one of ten (L3).

use std::time::Instant;

use discovery_core::{Backend, Instance, RegisterOptions, Registration};
use futures_util::future::try_join_all;

use super::{LIMIT, Scene};
use crate::Result;
use crate::hold::service;
use crate::meter::Meter;
use crate::process::Process;

const SIZES: [usize; 2] = [10, 1_000];
/// Enough for a processor time that is counted in hundredths of a second.
const UPDATES: usize = 10_000;
const JOINS: usize = 2_000;

/// What one change cost the watching process, and the store together with the write.
struct Cost {
    bytes: f64,
    requests: f64,
    micros: f64,
}

pub(super) async fn run(scene: &Scene) -> Result<()> {
    let (mut updates, mut joins) = (Vec::new(), Vec::new());
    for size in SIZES {
        let prefix = format!("change-{size}");
        let writer = crate::connect(&scene.direct(&prefix))?;
        let held = try_join_all((0..size).map(|n| register(&*writer, n))).await?;
        let watcher = Process::start(&["hold", &scene.url(&prefix), "watcher", "0", "1"])?;
        watcher.says("holds", &format!("0 1 {size}"), LIMIT).await?;
        let mut last = register(&*writer, size).await?;
        watcher.says("holds", &format!("0 1 {}", size + 1), LIMIT).await?;
        updates.push(
            measure(scene, &watcher, size, UPDATES, async || {
                for weight in 0..UPDATES {
                    held[0].update(|it| it.weight(weight as u32 + 2)).await?;
                }
                // Who sees this has seen what was before.
                Ok(last.deregister().await?)
            })
            .await?,
        );
        joins.push(
            measure(scene, &watcher, size - 1, JOINS * 2, async || {
                for n in 0..JOINS {
                    last = register(&*writer, size + 1 + n).await?;
                    last.deregister().await?;
                }
                Ok(held[size - 1].deregister().await?)
            })
            .await?,
        );
    }
    let must = "ratio of n = 1000 to n = 10, must be at most 2";
    compare(scene, "update", &updates, must);
    // A list of children has all of them, where the store says no more.
    let may = if scene.store.name() == "zookeeper" { "ratio of n = 1000 to n = 10" } else { must };
    compare(scene, "join", &joins, may);
    Ok(())
}

async fn register(writer: &dyn Backend, n: usize) -> Result<Registration> {
    let builder = Instance::builder(service(0)).id(format!("{n:05}")).endpoint("grpc://10.0.0.5:9000");
    Ok(writer.register(builder.build()?, RegisterOptions::default()).await?)
}

/// Makes changes until the watcher shows so many instances.
async fn measure(
    scene: &Scene,
    watcher: &Process,
    until: usize,
    changes: usize,
    make: impl AsyncFnOnce() -> Result<()>,
) -> Result<Cost> {
    let mut meter = Meter::of(&scene.store).await?;
    let (before, bytes, cpu, begun) = (meter.read().await?, scene.bytes(), watcher.cpu()?, Instant::now());
    make().await?;
    watcher.says("holds", &format!("0 1 {until}"), LIMIT).await?;
    let each = |total: f64| total / changes as f64;
    let cost = Cost {
        bytes: each((scene.bytes() - bytes) as f64),
        requests: each(meter.read().await?.since(before).requests as f64),
        micros: each((watcher.cpu()? - cpu).as_secs_f64() * 1e6),
    };
    let (bytes, requests, micros) = (cost.bytes, cost.requests, cost.micros);
    eprintln!(
        "{until}: {bytes:.0} bytes, {requests:.2} requests, {micros:.0} µs a change, {:?} in all",
        begun.elapsed()
    );
    Ok(cost)
}

fn compare(scene: &Scene, what: &str, costs: &[Cost], unit: &str) {
    let [small, large] = costs else { return };
    for (figure, value) in [
        ("bytes", large.bytes / small.bytes),
        ("requests", large.requests / small.requests),
        ("cpu", large.micros / small.micros),
    ] {
        scene.print(&format!("{what}_{figure}"), format!("{value:.2}"), unit);
    }
}
