//! A registry that comes back to a fleet: what twenty processes with a thousand registrations ask of it, by its own count.
//!
//! The processes reach the server through a proxy that refuses while the server is away, and lets them in once its counts can be read.

use std::time::{Duration, Instant};

use discovery_harness::Proxy;

use crate::Result;
use crate::measure::median;
use crate::meter::{Meter, Reading};
use crate::process::Process;
use crate::store::{Store, each};

const PROCESSES: usize = 20;
const EACH: usize = 50;
const NEEDED: usize = PROCESSES * EACH;
/// How long anything may take that has to happen.
const LIMIT: Duration = Duration::from_secs(90);
/// A restart that leases and sessions outlive: those of ZooKeeper end after 10 s without their server.
const RESTART: Duration = Duration::from_secs(1);
/// An outage in which the waits between tries have grown to their cap, so that the fleet is spread as far as it ever is.
const OUTAGE: Duration = Duration::from_secs(25);
/// The cap of the waits, which is the default one: everybody is back after that at the latest.
const WINDOW: Duration = Duration::from_secs(10);
/// What comes after everything holds again, such as a second audit, comes within that.
const SETTLE: Duration = Duration::from_secs(15);
/// How often the server is asked for its counts.
const SAMPLE: Duration = Duration::from_millis(100);
/// The time whose writes are counted together: a peak is the busiest of those.
const BUSIEST: Duration = Duration::from_secs(1);

pub(crate) async fn run(words: &[&str]) -> Result<()> {
    each(words, async |store| Storm::gather(store).await?.play().await).await
}

struct Storm {
    store: Store,
    proxy: Proxy,
    fleet: Vec<Process>,
}

/// What the server counted since it could be reached again: at first, when everything held again, and when that had settled.
struct Return {
    samples: Vec<Sample>,
    first: Reading,
    held: Reading,
    last: Reading,
}

type Sample = (Instant, Reading);

impl Storm {
    async fn gather(store: Store) -> Result<Self> {
        let proxy = Proxy::start(store.address()).await?;
        let url = format!("{}://{}/storm", store.name(), proxy.address());
        let start = |n: usize| Process::start(&["hold", &url, &format!("process-{n}"), &EACH.to_string(), "0"]);
        let fleet = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
        let storm = Self { store, proxy, fleet };
        storm.all_hold().await?;
        Ok(storm)
    }

    async fn play(self) -> Result<()> {
        if self.store.keeps_leases() {
            self.restart_with_data().await?;
        }
        self.restart_empty().await
    }

    async fn restart_with_data(&self) -> Result<()> {
        let before = Meter::of(&self.store).await?.read().await?;
        self.lose(RESTART).await?;
        self.store.start_again().await?;
        let back = self.let_in().await?;
        self.print("writes_where_leases_survive", back.last.writes - before.writes, "writes, must be 0");
        // A renewal and an audit for each process is the least that tells what survived.
        let requests = back.held.since(back.first).requests as f64 / PROCESSES as f64;
        self.print("survived_requests_each", format!("{requests:.1}"), "requests a process until everything holds");
        Ok(())
    }

    async fn restart_empty(&self) -> Result<()> {
        self.lose(OUTAGE).await?;
        self.store.start_empty().await?;
        let back = self.let_in().await?;
        let peak = busiest(&back.samples);
        let even = NEEDED as f64 * BUSIEST.as_secs_f64() / WINDOW.as_secs_f64();
        let ideal = ideal_peak();
        let over_needed = |count: u64| format!("{:.3}", count as f64 / NEEDED as f64);
        self.print("peak", peak, "writes in the busiest second");
        self.print("ideal_peak", format!("{ideal:.0}"), "writes in the busiest second of an even draw");
        // ZooKeeper counts sessions and parents too, and parents that somebody else has just made.
        let unit = if self.store.keeps_leases() { "ratio" } else { "ratio, must be at most 2" };
        self.print("peak_over_ideal", format!("{:.2}", peak as f64 / ideal), unit);
        self.print("peak_over_even", format!("{:.2}", peak as f64 / even), "ratio, to what no draw reaches");
        self.print("writes_over_needed", over_needed(back.last.since(back.first).writes), "ratio, settled");
        self.print("requests_over_needed", over_needed(back.held.since(back.first).requests), "ratio, held");
        Ok(())
    }

    /// Takes the server away for so long.
    async fn lose(&self, away: Duration) -> Result<()> {
        self.proxy.cut().await;
        self.store.kill()?;
        tokio::time::sleep(away).await;
        Ok(())
    }

    /// Lets the fleet reach the server again, and reads what that counts until everything holds and has settled.
    async fn let_in(&self) -> Result<Return> {
        let mut meter = Meter::of(&self.store).await?;
        let (connects, back, first) = (self.proxy.connects(), Instant::now(), meter.read().await?);
        let mut samples = vec![(back, first)];
        let mut held: Option<Sample> = None;
        self.proxy.pass().await?;
        loop {
            if back.elapsed() > LIMIT {
                return Err(format!("after {LIMIT:?} not everything holds again").into());
            }
            tokio::time::sleep(SAMPLE).await;
            let last = meter.read().await?;
            samples.push((Instant::now(), last));
            let everybody = self.proxy.connects() - connects >= PROCESSES as u64 && self.proxy.open() >= PROCESSES;
            match held {
                Some((at, held)) if at.elapsed() >= SETTLE => return Ok(Return { samples, first, held, last }),
                None if everybody && self.holding()? => {
                    held = Some((Instant::now(), last));
                    self.print(
                        "registered_after",
                        format!("{:.1}", back.elapsed().as_secs_f64()),
                        "s after its return",
                    );
                }
                _ => {}
            }
        }
    }

    fn holding(&self) -> Result<bool> {
        let all = format!("{EACH} 0 0");
        for process in &self.fleet {
            if process.last("holds")?.as_ref() != Some(&all) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn all_hold(&self) -> Result<()> {
        for process in &self.fleet {
            process.says("holds", &format!("{EACH} 0 0"), LIMIT).await?;
        }
        Ok(())
    }

    fn print(&self, figure: &str, value: impl std::fmt::Display, unit: &str) {
        println!("storm.{}.{figure} {value} {unit}", self.store.name());
    }
}

/// The most writes that any second saw.
fn busiest(samples: &[Sample]) -> u64 {
    let after = |at: Instant| samples.iter().take_while(move |(when, _)| *when <= at + BUSIEST).last();
    let writes = |(at, reading): &Sample| after(*at).map_or(0, |(_, last)| last.writes - reading.writes);
    samples.iter().map(writes).max().unwrap_or(0)
}

/// The most writes that a second sees if each process comes back at a moment drawn evenly from the window and writes what it holds at once:
/// full jitter as it is meant, since processes that know nothing of each other cannot take turns. The median of many draws.
fn ideal_peak() -> f64 {
    let mut random = fastrand::Rng::with_seed(1);
    let draw = |_| {
        let mut moments: Vec<_> = (0..PROCESSES).map(|_| random.f64() * WINDOW.as_secs_f64()).collect();
        moments.sort_by(f64::total_cmp);
        let within =
            |from: &f64| moments.iter().filter(|at| (0.0..BUSIEST.as_secs_f64()).contains(&(*at - from))).count();
        (moments.iter().map(within).max().unwrap_or(0) * EACH) as f64
    };
    median(&(0..1_001).map(draw).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_second_is_found_and_an_even_draw_has_bursts() {
        let begun = Instant::now();
        let at = |millis, writes| (begun + Duration::from_millis(millis), Reading { writes, requests: 0 });
        assert_eq!(busiest(&[at(0, 5), at(900, 15), at(1_500, 60), at(2_400, 70), at(9_000, 71)]), 55);
        assert!((EACH as f64 * 3.0..=EACH as f64 * 7.0).contains(&ideal_peak()), "{}", ideal_peak());
    }
}
