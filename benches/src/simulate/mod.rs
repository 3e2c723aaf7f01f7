//! The engine over a store that lies: random schedules on paused time, each from its seed.
//!
//! `simulate --schedules N` plays the seeds from `--seed` on, on every processor; `simulate --seed N --trace` shows one, step by step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use discovery_core::simulation::{Keep, Report, Schedule, run as play};

use crate::Result;

/// One schedule in so many is played twice, and has to go the same way.
const TWICE: u64 = 100;

#[derive(Default)]
struct Options {
    schedules: Option<u64>,
    seed: u64,
    trace: bool,
}

impl Options {
    fn read(words: &[&str]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--schedules" => options.schedules = Some(words.next().ok_or("--schedules lacks a number")?.parse()?),
                "--seed" => options.seed = words.next().ok_or("--seed lacks a number")?.parse()?,
                "--trace" => options.trace = true,
                other => return Err(format!("simulate does not know {other}").into()),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(words: &[&str]) -> Result<()> {
    let Options { schedules, seed, trace } = Options::read(words)?;
    if trace {
        return show(seed);
    }
    let count = schedules.unwrap_or(1_000);
    let (next, begun) = (AtomicU64::new(seed), Instant::now());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let counted: Vec<Result<Counts>> = thread::scope(|scope| {
        let work = || work(&next, seed + count);
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a schedule panicked".into()))).collect()
    });
    let took = begun.elapsed().as_secs_f64();
    let mut all = Counts::default();
    for counts in counted {
        let Counts { divergences, events, differing } = counts?;
        all.divergences += divergences;
        all.events += events;
        all.differing += differing;
    }
    println!("simulate.schedules {count} schedules");
    println!("simulate.events {} events", all.events);
    println!("simulate.divergences {} schedules", all.divergences);
    println!("simulate.replays_that_differ {} schedules", all.differing);
    println!("simulate.schedules_per_second {:.1} schedules/s", count as f64 / took);
    Ok(())
}

#[derive(Default)]
struct Counts {
    divergences: u64,
    events: u64,
    differing: u64,
}

/// Plays the schedules whose turn it is, beside others that do the same.
fn work(next: &AtomicU64, end: u64) -> Result<Counts> {
    let mut counts = Counts::default();
    loop {
        // Only distinctness matters.
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(counts);
        }
        let schedule = Schedule::random(seed);
        let report = play(&schedule, Keep::Hash)?;
        counts.events += report.events;
        counts.divergences += u64::from(!report.divergences.is_empty());
        print(&report);
        if seed.is_multiple_of(TWICE) && play(&schedule, Keep::Hash)?.hash != report.hash {
            println!("seed {seed} went another way when it was played again");
            counts.differing += 1;
        }
    }
}

fn print(report: &Report) {
    for divergence in &report.divergences {
        println!("seed {}: {divergence}", report.seed);
    }
}

fn show(seed: u64) -> Result<()> {
    let report = play(&Schedule::random(seed), Keep::Lines)?;
    for line in &report.trace {
        println!("{line}");
    }
    print(&report);
    println!("simulate.hash {:016x}", report.hash);
    Ok(())
}
