//! How many keys move when an instance leaves and when one joins, against those that must.

use std::time::Duration;

use discovery_core::picker::ConsistentHash;
use discovery_core::{Balancer, BalancerOptions, Context, Outcome};
use tokio::time::timeout;

use super::INSTANCES;
use crate::Result;
use crate::fleet::Fleet;
use crate::measure::{ROUNDS, print};

/// So many that 200 of them belong to an instance.
const KEYS: usize = 200_000;

/// Through a balancer, as a caller sees it. In each round one leaves and another joins, so the later ones come after some churn.
pub(super) async fn run() -> Result<()> {
    let fleet = Fleet::new(vec![1; INSTANCES])?;
    let balancer = fleet.balancer(ConsistentHash::new(), BalancerOptions::default()).await?;
    let mut random = fastrand::Rng::with_seed(1);
    let keys: Vec<_> = (0..KEYS).map(|_| random.u128(..).to_le_bytes()).collect();
    let (mut left, mut joined) = (Vec::new(), Vec::new());
    let mut before = owners(&balancer, &keys)?;
    for round in 0..ROUNDS {
        let (leaver, joiner) = (round * INSTANCES / ROUNDS, INSTANCES + round);
        fleet.remove(leaver)?;
        counts(&balancer, INSTANCES - 1).await?;
        let between = owners(&balancer, &keys)?;
        left.push(moved(&before, &between) / of(&before, leaver));
        fleet.put(joiner, 1, 0)?;
        counts(&balancer, INSTANCES).await?;
        let after = owners(&balancer, &keys)?;
        joined.push(moved(&between, &after) / of(&after, joiner));
        before = after;
    }
    // A move too many or too few makes it more or less than 1: the ideal is to move exactly what was the leaver's or becomes the joiner's.
    print("hash.moved_over_ideal", &[left.clone(), joined.clone()].concat(), "ratio");
    print("hash.moved_over_ideal_leave", &left, "ratio");
    print("hash.moved_over_ideal_join", &joined, "ratio");
    Ok(())
}

/// The id of each key's instance.
fn owners(balancer: &Balancer, keys: &[[u8; 16]]) -> Result<Vec<usize>> {
    let mut reader = balancer.reader();
    let owner = |key: &[u8; 16]| {
        let pick = reader.pick(&Context::default().with_key(key))?;
        let id = pick.instance().id().parse()?;
        pick.finish(Outcome::Success);
        Ok(id)
    };
    keys.iter().map(owner).collect()
}

fn moved(before: &[usize], after: &[usize]) -> f64 {
    before.iter().zip(after).filter(|(before, after)| before != after).count() as f64
}

fn of(owners: &[usize], instance: usize) -> f64 {
    owners.iter().filter(|owner| **owner == instance).count() as f64
}

/// Waits until the balancer knows so many.
async fn counts(balancer: &Balancer, size: usize) -> Result<()> {
    let mut selections = balancer.selections();
    while balancer.members().len() != size {
        timeout(Duration::from_secs(10), selections.changed()).await?;
    }
    Ok(())
}
