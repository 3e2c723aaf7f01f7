//! `cargo bench -p discovery-bench` shows a developer at work what each picker costs, with the report of the outcome.

#![allow(clippy::expect_used, reason = "a bench that cannot begin has to say so")]

#[allow(dead_code, reason = "the figures need more of it")]
#[path = "../src/fleet.rs"]
mod fleet;

use discovery_core::{BalancerOptions, Context, Outcome};
use divan::Bencher;

use fleet::{Fleet, PICKERS};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() {
    divan::main();
}

#[divan::bench(args = PICKERS.map(|(name, _)| name), consts = [10, 100, 1000])]
fn pick<const SIZE: usize>(bencher: Bencher<'_, '_>, name: &str) {
    let Some((_, factory)) = PICKERS.iter().find(|(known, _)| *known == name) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let balancer =
        runtime.block_on(async { Fleet::new(vec![1; SIZE])?.balancer(factory(), BalancerOptions::default()).await });
    let mut reader = balancer.expect("instances in memory are found").reader();
    bencher.bench_local(|| reader.pick(&Context::default()).map(|pick| pick.finish(Outcome::Success)).is_ok());
}
