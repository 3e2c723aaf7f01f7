//! How far smooth weighted round robin is from the ideal at worst.

use discovery_core::picker::WeightedRoundRobin;
use discovery_core::{BalancerOptions, Context, Outcome};

use super::INSTANCES;
use crate::Result;
use crate::fleet::Fleet;
use crate::measure::print;

/// How often all turns are taken.
const SCHEDULES: usize = 9;

/// Counts in picks, over every prefix from the first pick to the end of each schedule.
pub(super) async fn run() -> Result<()> {
    // An instance's weight tells who it is.
    let weights: Vec<_> = (1..).take(INSTANCES).collect();
    let sum: u32 = weights.iter().sum();
    let ideal: Vec<_> = weights.iter().map(|weight| f64::from(*weight) / f64::from(sum)).collect();
    let fleet = Fleet::new(weights)?;
    let mut reader = fleet.balancer(WeightedRoundRobin::new(), BalancerOptions::default()).await?.reader();
    let (mut counts, mut prefix, mut worst) = (vec![0.0; INSTANCES], 0.0, Vec::new());
    for _ in 0..SCHEDULES {
        let mut deviation = 0f64;
        for _ in 0..sum {
            let pick = reader.pick(&Context::default())?;
            counts[pick.instance().weight() as usize - 1] += 1.0;
            prefix += 1.0;
            pick.finish(Outcome::Success);
            let distances = counts.iter().zip(&ideal).map(|(count, share): (&f64, _)| (count - prefix * share).abs());
            deviation = distances.fold(deviation, f64::max);
        }
        worst.push(deviation);
    }
    print("pick.swrr_max_deviation", &worst, "picks");
    Ok(())
}
