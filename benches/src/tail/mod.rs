//! The slow requests that a balancer leaves while one server is slow, in virtual time.
//!
//! The set-up is that of Linkerd's comparison ("Beyond Round Robin: Load Balancing for Latency", 2016). Before the first late answer is
//! due nobody can know, so whoever only watches its own requests sends the slow server its share for 167 ms: 15 requests of 60,000. That
//! is the floor. Every contestant meets the same requests.
//!
//! What is done beside picking, hedging and ejection, has its figures here too: `tail.hedged_…` and `tail.ejection_…`.

mod ejection;
mod hedging;
mod plot;
mod report;
mod simulation;

use discovery_core::{Outcome, PickerFactory};

use crate::Result;
use crate::fleet::PICKERS;
use crate::measure::print;
use hedging::Refused;
use report::Report;

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
    hedged().await?;
    ejection::run().await?;
    if plots == Plots::Yes {
        plot::latencies(&drawn)?;
        plot::balance(&drawn)?;
    }
    Ok(())
}

/// With hedges at their defaults around the picker that leaves the fewest slow requests.
///
/// How a first copy that lost is reported matters, as the docs of `Hedge` say: cancelled, it tells the picker only that an answer takes longer than the first one took
/// elsewhere, a fifth of what it really takes, so the slow server stays worth a try; as a failure it doubles with each time.
async fn hedged() -> Result<()> {
    for (variant, refused, lost) in [
        ("", Refused::AsksAgain, Outcome::Failure),
        ("_asked_once", Refused::Waits, Outcome::Failure),
        ("_loser_cancelled", Refused::AsksAgain, Outcome::Cancelled),
    ] {
        let mut reports = Vec::new();
        for seed in SEEDS {
            reports.push(hedging::run(picker("ewma")?, refused, lost, seed).await?);
        }
        let of = |figure: fn(&(Report, usize)) -> f64| reports.iter().map(figure).collect::<Vec<_>>();
        let print =
            |figure: &str, values: Vec<f64>, unit| print(&format!("tail.hedged_{figure}{variant}"), &values, unit);
        print("percent", of(|(report, _)| report.percent_over_a_second()), "percent");
        print("extra", of(|(report, copies)| *copies as f64 / report.requests() as f64), "of all requests");
        print("copies", of(|(_, copies)| *copies as f64), "requests");
        print("p999", of(|(report, _)| report.quantile(0.999)), "ms");
    }
    Ok(())
}

fn picker(name: &str) -> Result<Box<dyn PickerFactory>> {
    let found = PICKERS.iter().find(|(known, _)| *known == name);
    Ok(found.ok_or_else(|| format!("there is no picker {name}"))?.1())
}
