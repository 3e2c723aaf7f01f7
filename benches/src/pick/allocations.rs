//! Whether a pick allocates: over a million picks by each picker, while the set is updated as fast as the balancer follows.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use discovery_core::{Balancer, BalancerOptions, Context, Outcome};

use super::INSTANCES;
use super::ours::picks;
use crate::Result;
use crate::fleet::{Fleet, PICKERS};
use crate::measure::print;

const PICKS: usize = 1_000_000;

pub(super) async fn run() -> Result<()> {
    if allocation_counter::measure(|| drop(black_box(Box::new(0)))).count_total != 1 {
        return Err("allocations are not counted".into());
    }
    let (mut allocations, mut updates) = (Vec::new(), Vec::new());
    for (name, factory) in PICKERS {
        let fleet = Arc::new(Fleet::new(vec![1; INSTANCES])?);
        let balancer = fleet.balancer(factory(), BalancerOptions::default()).await?;
        let built = Arc::new(AtomicUsize::new(0));
        let updater = tokio::spawn(update(fleet, balancer.clone(), built.clone()));
        let count = tokio::task::block_in_place(|| count(&balancer));
        updater.abort();
        if count > 0 {
            println!("pick.allocations_{name} {count} allocations");
        }
        allocations.push(count as f64);
        updates.push(built.load(Ordering::Relaxed) as f64);
    }
    let all: f64 = allocations.iter().sum();
    print("pick.allocations", &[all], "allocations");
    print("pick.allocations_updates", &updates, "updates a picker");
    Ok(())
}

/// Allocations of this thread alone.
fn count(balancer: &Balancer) -> u64 {
    let mut reader = balancer.reader();
    // What a thread needs once in its life, such as the state of its random numbers, belongs to no pick.
    picks(&mut reader, 1);
    shared_picks(balancer, 1);
    let counted = allocation_counter::measure(|| {
        picks(&mut reader, PICKS / 2);
        shared_picks(balancer, PICKS / 2);
    });
    counted.count_total
}

/// Picks without a reader.
fn shared_picks(balancer: &Balancer, times: usize) {
    for _ in 0..times {
        if let Ok(pick) = balancer.pick(&Context::default()) {
            pick.finish(Outcome::Success);
        }
    }
}

/// Changes a record as soon as the last change is heeded: weights, versions and who is there.
async fn update(fleet: Arc<Fleet>, balancer: Balancer, built: Arc<AtomicUsize>) -> Result<()> {
    let mut selections = balancer.selections();
    for version in 1.. {
        fleet.put(version % INSTANCES, version as u32 % 3, version)?;
        selections.changed().await;
        built.store(version, Ordering::Relaxed);
    }
    Ok(())
}
