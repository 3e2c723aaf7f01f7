//! The slow requests that a balancer leaves while one server is slow, in virtual time.
//!
//! The set-up is that of Linkerd's comparison ("Beyond Round Robin: Load Balancing for Latency", 2016). Before the first late answer is
//! due nobody can know, so whoever only watches its own requests sends the slow server its share for 167 ms: 15 requests of 60,000. That
//! is the floor. Every contestant meets the same requests.
//!
//! What is done beside picking, hedging and ejection, has its figures here too: `tail.hedged_…` and `tail.ejection_…`.

mod plot;
mod simulation;

use discovery_core::PickerFactory;

use crate::Result;
use crate::fleet::PICKERS;
use crate::measure::print;
use simulation::Report;

/// Percent of the requests that nobody can save who only watches.
const FLOOR: f64 = 0.025;
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
/// Who takes part. Weighted pickers do as others where all weights are the same.
const CONTESTANTS: [&str; 5] = ["ewma", "p2c", "least_requests", "round_robin", "random"];

/// Whether the first seed's course is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plots {
    No,
    Yes,
}

pub(crate) async fn run(plots: Plots) -> Result<()> {
    println!("tail.seeds {SEEDS:?}");
    let mut drawn = Vec::new();
    for name in CONTESTANTS {
        let mut reports = Vec::new();
        for seed in SEEDS {
            reports.push(simulation::run(picker(name)?, seed).await?);
        }
        let of = |figure: fn(&Report) -> f64| reports.iter().map(figure).collect::<Vec<_>>();
        print(&format!("tail.{name}_over_floor"), &of(|report| report.percent_over_a_second() / FLOOR), "ratio");
        print(&format!("tail.{name}_percent"), &of(Report::percent_over_a_second), "percent");
        print(&format!("tail.{name}_p999"), &of(|report| report.quantile(0.999)), "ms");
        drawn.extend(reports.into_iter().next().map(|report| (name, report)));
    }
    if plots == Plots::Yes {
        plot::latencies(&drawn)?;
        plot::balance(&drawn)?;
    }
    Ok(())
}

fn picker(name: &str) -> Result<Box<dyn PickerFactory>> {
    let found = PICKERS.iter().find(|(known, _)| *known == name);
    Ok(found.ok_or_else(|| format!("there is no picker {name}"))?.1())
}
