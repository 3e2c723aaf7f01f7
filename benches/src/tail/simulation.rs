//! A minute of requests to a real balancer, event by event, on a clock that is moved by hand.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use discovery_core::{BalancerOptions, Clock, Context, ManualClock, Moment, Outcome, Pick, PickerFactory, Reader};

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
const TOO_LONG_MILLIS: f64 = 1_000.0;

/// What became of the requests.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// What each took in milliseconds, sorted.
    latencies: Vec<f64>,
    /// How many each server got in each second.
    pub(super) served: Vec<[u32; SERVERS]>,
}

impl Report {
    pub(super) fn percent_over_a_second(&self) -> f64 {
        100.0 * self.share_over(TOO_LONG_MILLIS)
    }

    /// The share that took longer.
    pub(super) fn share_over(&self, millis: f64) -> f64 {
        let within = self.latencies.partition_point(|latency| *latency <= millis);
        (self.latencies.len() - within) as f64 / self.latencies.len() as f64
    }

    /// What that share took at most.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a list")]
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let place = (self.latencies.len() as f64 * share) as usize;
        self.latencies.get(place).copied().unwrap_or(f64::NAN)
    }
}

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

/// The balancer's clock and the hand that moves it.
struct Time {
    clock: Clock,
    hand: ManualClock,
}

impl Time {
    /// A second ahead of the simulation's, as a moment of zero would mean that nothing is known.
    fn set(&self, seconds: f64) {
        let at = Duration::from_secs_f64(1.0 + seconds);
        self.hand.advance(at.saturating_sub(self.clock.now().since(Moment::default())));
    }
}

/// Lets a minute pass.
pub(super) async fn run(factory: Box<dyn PickerFactory>, seed: u64) -> Result<Report> {
    let (clock, hand) = Clock::manual();
    let options = BalancerOptions::default().with_clock(clock.clone());
    let fleet = Fleet::new([1; SERVERS])?;
    let reader = fleet.balancer(factory, options).await?.reader();
    drive(reader, &Time { clock, hand }, seed)
}

/// Not async, so that it stays on the thread whose random numbers it seeds: the pickers draw from them.
fn drive(mut reader: Reader, time: &Time, seed: u64) -> Result<Report> {
    fastrand::seed(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut report = Report { latencies: Vec::new(), served: vec![[0; SERVERS]; SECONDS] };
    let (mut flights, mut now) = (BinaryHeap::<Flight>::new(), 0.0);
    loop {
        now -= (1.0 - random.f64()).ln() / PER_SECOND;
        while flights.peek().is_some_and(|flight| flight.ends <= now)
            && let Some(flight) = flights.pop()
        {
            time.set(flight.ends);
            flight.pick.finish(Outcome::Success);
        }
        let Some(second) = report.served.get_mut(now as usize) else { break };
        time.set(now);
        // Drawn whoever is picked, so that all contestants meet the same requests.
        let usual = USUAL_MILLIS.0 + random.f64() * (USUAL_MILLIS.1 - USUAL_MILLIS.0);
        let pick = reader.pick(&Context::default())?;
        let server: usize = pick.instance().id().parse()?;
        let is_slow = server == SLOW && (SLOW_FROM..SLOW_TO).contains(&now);
        let took = if is_slow { SLOW_MILLIS } else { usual };
        second[server] += 1;
        report.latencies.push(took);
        flights.push(Flight { ends: now + took / 1e3, pick });
    }
    report.latencies.sort_by(f64::total_cmp);
    Ok(report)
}
