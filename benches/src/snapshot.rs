//! A cold snapshot of 10,000 instances of 200 bytes: our first full set against the raw client's best read.

mod etcd;
mod redis;
mod zookeeper;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use discovery_core::{Backend, Instance, Key, KeySpace, encode};
use std::sync::Arc;

use crate::Result;
use crate::measure::{WARM_UP, millis, print};

const INSTANCES: usize = 10_000;
const BYTES: usize = 200;
const SERVICE: &str = "orders";
/// More rounds than elsewhere: a server's own time varies by half.
const ROUNDS: usize = 25;

/// A server filled with the records, and the fastest way that its client can read them.
#[async_trait]
pub(crate) trait Rival: Send {
    /// A handle of ours.
    fn open(&self) -> Result<Arc<dyn Backend>>;

    /// Reads everything once with the raw client on a connection that is open, and returns how many records there were.
    async fn read(&mut self) -> Result<usize>;
}

/// Compares the stores that are named, or all whose servers are there.
pub(crate) async fn run(stores: &[&str]) -> Result<()> {
    let wanted = |store: &str| stores.is_empty() || stores.contains(&store);
    if wanted("etcd") && discovery_harness::available("etcd")? {
        compare("etcd", etcd::Etcd::start().await?).await?;
    }
    if wanted("zookeeper") && discovery_harness::ZooKeeper::available()? {
        compare("zookeeper", zookeeper::ZooKeeper::start().await?).await?;
    }
    if wanted("redis") && discovery_harness::available("redis-server")? {
        compare("redis", redis::Redis::start().await?).await?;
    }
    Ok(())
}

async fn compare(store: &str, mut rival: impl Rival) -> Result<()> {
    let (mut ours, mut raw, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let backend = rival.open()?;
    // Connecting is not part of a read, on either side.
    backend.snapshot("somebody-else", Duration::from_secs(5)).await?;
    for round in 0..WARM_UP + ROUNDS {
        let begun = Instant::now();
        let read = rival.read().await?;
        let floor = begun.elapsed();
        let begun = Instant::now();
        // The watch is dropped with each round, so every first set is read anew.
        let set = backend.snapshot(SERVICE, Duration::from_secs(10)).await?;
        let own = begun.elapsed();
        if (read, set.len(), set.unreadable()) != (INSTANCES, INSTANCES, 0) {
            return Err(format!("{store}: {read} records read, {} instances found", set.len()).into());
        }
        drop(set);
        if round >= WARM_UP {
            ours.push(millis(own));
            raw.push(millis(floor));
            ratios.push(own.as_secs_f64() / floor.as_secs_f64());
        }
    }
    print(&format!("snapshot.{store}_ours"), &ours, "ms");
    print(&format!("snapshot.{store}_raw"), &raw, "ms");
    print(&format!("snapshot.{store}_over_raw"), &ratios, "ratio");
    Ok(())
}

/// The records, each of about 200 bytes, in the native layout.
pub(crate) fn records() -> Result<Vec<(Key, String, Vec<u8>)>> {
    let space = KeySpace::new("")?;
    let build = |n: usize, padding: usize| {
        let builder = Instance::builder(SERVICE).id(format!("{n:05}")).endpoint("grpc://10.0.0.5:9000");
        builder.metadata("p", "x".repeat(padding)).build()
    };
    let padding = BYTES.saturating_sub(encode(&build(0, 0)?).len());
    (0..INSTANCES)
        .map(|n| {
            let instance = build(n, padding)?;
            Ok((instance.key(), space.key(&instance.key()), encode(&instance)))
        })
        .collect()
}
