//! A set of ten thousand, read whole in parts (L4).

use discovery_core::{Instance, RegisterOptions};
use futures_util::StreamExt;
use futures_util::stream;

use super::{LIMIT, Scene};
use crate::Result;
use crate::hold::service;
use crate::meter::Meter;
use crate::process::Process;

const INSTANCES: usize = 10_000;
/// Registrations that are under way at once.
const TOGETHER: usize = 200;

pub(super) async fn run(scene: &Scene) -> Result<()> {
    let writer = crate::connect(&scene.direct("whole"))?;
    let register = async |n: usize| -> Result<_> {
        let builder = Instance::builder(service(0)).id(format!("{n:05}")).endpoint("grpc://10.0.0.5:9000");
        let padded = builder.metadata("padding", "x".repeat(1_000));
        Ok(writer.register(padded.build()?, RegisterOptions::default().with_deadline(LIMIT)).await?)
    };
    let held: Vec<_> = stream::iter(0..INSTANCES).map(register).buffer_unordered(TOGETHER).collect().await;
    let held = held.into_iter().collect::<Result<Vec<_>>>()?;
    let mut meter = Meter::of(&scene.store).await?;
    let before = meter.read().await?;
    let watcher = Process::start(&["hold", &scene.url("whole"), "watcher", "0", "1"])?;
    watcher.says("holds", &format!("0 1 {}", held.len()), LIMIT).await?;
    let requests = meter.read().await?.since(before).requests;
    scene.print(
        "whole_requests",
        requests,
        &format!("requests for a set of {INSTANCES} × 1 KiB, and what it takes to connect"),
    );
    if let Some(unbounded) = meter.unbounded() {
        scene.print("whole_unbounded", unbounded, "commands without a bound, must be 0");
    }
    Ok(())
}
