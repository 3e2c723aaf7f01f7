//! A minute without the registry at full load, while clients are killed and started and servers come and go.
//!
//! The minute before it sees the same clients killed and started at the same moments, so that the two differ in the registry alone.

mod caller;

use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

use crate::Result;
use crate::deploy::Server;
use crate::measure::median;
use crate::store::{Store, each};
use caller::Caller;
pub(crate) use caller::call;

const SERVERS: usize = 5;
const CALLERS: usize = 4;
/// These are killed and started in turn; the others live through everything.
const RESTARTED: [usize; 2] = [2, 3];
/// Calls a second of each client.
const RATE: u32 = 500;
const MINUTE: Duration = Duration::from_secs(60);
/// How often one of the clients is killed and started.
const RHYTHM: Duration = Duration::from_secs(10);
/// A 99th percentile of its own has each of these, which shows how far they lie apart anyway.
const SLICE: Duration = Duration::from_secs(5);
const WARM_UP: Duration = Duration::from_secs(10);
/// How long anything may take that has to happen.
const LIMIT: Duration = Duration::from_secs(60);
/// As long as a call may take, and a little more: one that began in the outage has ended, in whatever way.
const LAST_CALLS: Duration = Duration::from_secs(11);
/// Longer than a server takes to stop that cannot deregister.
const STOP: Duration = Duration::from_secs(30);

pub(crate) async fn run(words: &[&str]) -> Result<()> {
    each(words, async |store| Scene::set(store).await?.play().await).await
}

struct Scene {
    store: Store,
    url: String,
    cache: TempDir,
    servers: Vec<Server>,
    callers: Vec<Caller>,
    /// Those that were killed; what they told counts.
    killed: Vec<Caller>,
}

impl Scene {
    async fn set(store: Store) -> Result<Self> {
        let options = "ttl=3s&backoff=2s&probe=1s&timeout=1s";
        let url = format!("{}://{}/blackout?{options}", store.name(), store.address());
        let (cache, servers) = (tempfile::tempdir()?, Vec::new());
        let mut scene = Self { store, url, cache, servers, callers: Vec::new(), killed: Vec::new() };
        for number in 0..SERVERS {
            scene.servers.push(Server::start(&format!("s{number}"), &scene.url)?);
        }
        for _ in 0..CALLERS {
            scene.callers.push(scene.caller()?);
        }
        scene.all_see(&["s0", "s1", "s2", "s3", "s4"]).await?;
        Ok(scene)
    }

    fn caller(&self) -> Result<Caller> {
        Caller::start(&format!("{}&cache={}", self.url, self.cache.path().display()), RATE)
    }

    async fn play(mut self) -> Result<()> {
        tokio::time::sleep(WARM_UP).await;
        let (lit, rss) = (SystemTime::now(), self.rss()?);
        self.minute(Registry::There).await?;
        let before = self.rss()?;
        self.print("rss_growth_before_mb", format!("{:.1}", growth(&rss, &before)), "MiB in the minute before");
        self.store.kill()?;
        let gone = SystemTime::now();
        self.minute(Registry::Away).await?;
        let (back, returned) = (SystemTime::now(), Instant::now());
        self.print("rss_growth_mb", format!("{:.1}", growth(&before, &self.rss()?)), "MiB, must be at most 5");
        self.store.start_again().await?;
        self.all_see(&["late", "s0", "s1", "s2", "s3"]).await?;
        self.print(
            "converge_s",
            format!("{:.2}", returned.elapsed().as_secs_f64()),
            "s, the start of the store included",
        );
        tokio::time::sleep(LAST_CALLS).await;
        self.report(lit, gone, back)
    }

    /// Kills and starts clients for a minute; while the registry is away a server joins and one leaves.
    async fn minute(&mut self, registry: Registry) -> Result<()> {
        let begun = tokio::time::Instant::now();
        for step in 1.. {
            tokio::time::sleep_until((begun + RHYTHM * step).min(begun + MINUTE)).await;
            if RHYTHM * step >= MINUTE {
                return Ok(());
            }
            let place = RESTARTED[step as usize % RESTARTED.len()];
            let next = self.caller()?;
            let killed = std::mem::replace(&mut self.callers[place], next);
            killed.kill()?;
            self.killed.push(killed);
            match (registry, step) {
                (Registry::Away, 2) => self.servers.push(Server::start("late", &self.url)?),
                // It cannot deregister, and says so when it ends.
                (Registry::Away, 3) => _ = self.servers.remove(SERVERS - 1).stop(STOP).await?,
                _ => {}
            }
        }
        Ok(())
    }

    fn report(&self, lit: SystemTime, gone: SystemTime, back: SystemTime) -> Result<()> {
        let mut calls = Vec::new();
        for caller in self.callers.iter().chain(&self.killed) {
            calls.extend(caller.calls()?);
        }
        let failed = calls.iter().filter(|call| call.failure.is_some()).count();
        self.print("calls", calls.len(), "calls");
        self.print("failed", failed, "calls, must be 0");
        for failure in calls.iter().filter_map(|call| call.failure.as_ref()).take(5) {
            eprintln!("{failure}");
        }
        let restarted = self.killed.len();
        self.print("restarted", restarted, "clients killed and started");
        for (figure, from, until) in [("first_answer_before_ms", lit, gone), ("first_answer_ms", gone, back)] {
            let started = self.callers.iter().chain(&self.killed).filter(|c| (from..until).contains(&c.started()));
            let answers = started.map(Caller::first_answer).collect::<Result<Vec<_>>>()?;
            let longest = answers.iter().max().map_or(0.0, Duration::as_secs_f64) * 1e3;
            let unit = format!("ms from the start of a client to its first answer, the longest of {}", answers.len());
            self.print(figure, format!("{longest:.0}"), &unit);
        }
        let slices = |from: SystemTime, until: SystemTime| {
            let starts = (0..).map(|n| from + SLICE * n).take_while(|at| *at + SLICE <= until);
            starts.map(|at| caller::report(&calls, at, at + SLICE).quantile(0.99)).collect::<Vec<_>>()
        };
        let (before, away) = (slices(lit, gone), slices(gone, back));
        let spread = |p99s: &[f64]| {
            let (min, max) = p99s.iter().fold((f64::MAX, 0.0_f64), |(min, max), p99| (min.min(*p99), max.max(*p99)));
            format!("ms (min {min:.2}, max {max:.2}, slices of 5 s {})", p99s.len())
        };
        self.print("before_p99", format!("{:.2}", median(&before)), &spread(&before));
        self.print("away_p99", format!("{:.2}", median(&away)), &spread(&away));
        let whole = |from, until| caller::report(&calls, from, until).quantile(0.99);
        let unit = "ratio of the medians of slices, must be at most 1.05";
        self.print("p99_over_before", format!("{:.3}", median(&away) / median(&before)), unit);
        let unit = "ratio of the whole minutes";
        self.print("whole_p99_over_before", format!("{:.3}", whole(gone, back) / whole(lit, gone)), unit);
        Ok(())
    }

    /// The memory of the clients that live through everything.
    fn rss(&self) -> Result<Vec<f64>> {
        let lives = |place: &usize| !RESTARTED.contains(place);
        (0..CALLERS).filter(lives).map(|place| self.callers[place].rss()).collect()
    }

    /// Waits until every client has these servers in its set, and no others.
    async fn all_see(&self, servers: &[&str]) -> Result<()> {
        for caller in &self.callers {
            caller.sees(servers, LIMIT).await?;
        }
        Ok(())
    }

    fn print(&self, figure: &str, value: impl std::fmt::Display, unit: &str) {
        println!("blackout.{}.{figure} {value} {unit}", self.store.name());
    }
}

/// Whether the registry can be reached.
#[derive(Clone, Copy)]
enum Registry {
    There,
    Away,
}

/// The most that any of them grew by.
fn growth(before: &[f64], after: &[f64]) -> f64 {
    before.iter().zip(after).map(|(before, after)| after - before).fold(0.0, f64::max)
}
