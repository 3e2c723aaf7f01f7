//! A minute of requests to a real balancer, event by event, on a clock that is moved by hand.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use discovery_core::{BalancerOptions, Clock, Context, ManualClock, Moment, Outcome, Pick, PickerFactory, Reader};

use super::report::Report;
use crate::Result;
use crate::fleet::Fleet;

pub(super) const SERVERS: usize = 11;
/// The one that is slow for a while.
pub(super) const SLOW: usize = 3;
pub(super) const SECONDS: usize = 60;
const PER_SECOND: f64 = 1_000.0;
const USUAL_MILLIS: (f64, f64) = (162.0, 172.0);
const SLOW_MILLIS: f64 = 2_000.0;
/// The seconds in which what begins at the slow one takes so long.
const SLOW_FROM: f64 = 15.0;
const SLOW_TO: f64 = 45.0;

/// A request on its way.
struct Flight {
    ends: f64,
    pick: Pick,
}

/// The first that ends is the greatest, as a heap gives that first.
impl Ord for Flight {
    fn cmp(&self, other: &Self) -> Ordering {
        other.ends.total_cmp(&self.ends)
    }
}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Flight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Flight {}

/// When requests begin, and what each takes at a server as usual. All contestants meet the same ones.
pub(super) struct Arrivals {
    random: fastrand::Rng,
    now: f64,
}

impl Arrivals {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), now: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = (f64, f64);

    fn next(&mut self) -> Option<Self::Item> {
        self.now -= (1.0 - self.random.f64()).ln() / PER_SECOND;
        (self.now < SECONDS as f64).then(|| (self.now, usual(&mut self.random)))
    }
}

/// What an answer takes in milliseconds where nobody is slow.
pub(super) fn usual(random: &mut fastrand::Rng) -> f64 {
    USUAL_MILLIS.0 + random.f64() * (USUAL_MILLIS.1 - USUAL_MILLIS.0)
}

/// What it takes at a server if it begins now.
pub(super) fn took(server: usize, now: f64, usual: f64) -> f64 {
    let is_slow = server == SLOW && (SLOW_FROM..SLOW_TO).contains(&now);
    if is_slow { SLOW_MILLIS } else { usual }
}

/// The balancer's clock and the hand that moves it.
pub(super) struct Time {
    clock: Clock,
    hand: ManualClock,
}

impl Time {
    /// A second ahead of the simulation's, as a moment of zero would mean that nothing is known.
    pub(super) fn set(&self, seconds: f64) {
        let at = Duration::from_secs_f64(1.0 + seconds);
        self.hand.advance(at.saturating_sub(self.clock.now().since(Moment::default())));
    }
}

/// A balancer over the servers, and its time.
pub(super) async fn balance(factory: impl PickerFactory) -> Result<(Reader, Time)> {
    let (clock, hand) = Clock::manual();
    let options = BalancerOptions::default().with_clock(clock.clone());
    let reader = Fleet::new([1; SERVERS])?.balancer(factory, options).await?.reader();
    Ok((reader, Time { clock, hand }))
}

/// Lets a minute pass.
pub(super) async fn run(factory: Box<dyn PickerFactory>, seed: u64) -> Result<Report> {
    let (reader, time) = balance(factory).await?;
    drive(reader, &time, seed)
}

/// Not async, so that it stays on the thread whose random numbers it seeds: the pickers draw from them.
fn drive(mut reader: Reader, time: &Time, seed: u64) -> Result<Report> {
    fastrand::seed(seed);
    let mut report = Report::default();
    let mut flights = BinaryHeap::<Flight>::new();
    for (now, usual) in Arrivals::new(seed) {
        while flights.peek().is_some_and(|flight| flight.ends <= now)
            && let Some(flight) = flights.pop()
        {
            time.set(flight.ends);
            flight.pick.finish(Outcome::Success);
        }
        time.set(now);
        let pick = reader.pick(&Context::default())?;
        let server: usize = pick.instance().id().parse()?;
        let took = took(server, now, usual);
        report.served[now as usize][server] += 1;
        report.latencies.push(took);
        flights.push(Flight { ends: now + took / 1e3, pick });
    }
    report.latencies.sort_by(f64::total_cmp);
    Ok(report)
}
