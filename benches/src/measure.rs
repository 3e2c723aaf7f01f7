//! Rounds, medians and how they are printed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Rounds that warm up and do not count, and rounds that do.
pub(crate) const WARM_UP: usize = 2;
pub(crate) const ROUNDS: usize = 9;
/// The time that a contestant gets in one go: shorter than what the scheduler gives a thread before it lets another one in.
const SLICE: Duration = Duration::from_millis(1);
/// How many of those a round has for each contestant, of which the median counts.
const SLICES: usize = 15;

/// Prints `name median unit (min … max)`.
pub(crate) fn print(name: &str, values: &[f64], unit: &str) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else { return };
    println!("{name} {:.3} {unit} (min {min:.3}, max {max:.3}, rounds {})", median(values), sorted.len());
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The value in the middle; of an even number the higher one.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The time that `work` takes.
pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// Does something so many times and returns how long that took.
type Run<'a> = Box<dyn FnMut(usize) -> Duration + 'a>;

/// Small operations that are measured in turn.
#[derive(Default)]
pub(crate) struct Contest<'a> {
    contestants: Vec<(&'static str, Run<'a>)>,
}

impl<'a> Contest<'a> {
    /// Adds a contestant that does its operation so many times.
    pub(crate) fn add(&mut self, name: &'static str, mut work: impl FnMut(usize) + 'a) {
        self.add_timed(name, move |times| timed(|| work(times)));
    }

    /// Adds one that takes the time itself.
    pub(crate) fn add_timed(&mut self, name: &'static str, run: impl FnMut(usize) -> Duration + 'a) {
        self.contestants.push((name, Box::new(run)));
    }

    /// Measures everybody's operation in nanoseconds.
    pub(crate) fn run(mut self) -> Times {
        let batches: Vec<_> = self.contestants.iter_mut().map(|(_, run)| batch(run)).collect();
        let mut times = Times::default();
        for round in 0..WARM_UP + ROUNDS {
            let mut slices = vec![Vec::new(); batches.len()];
            for _ in 0..SLICES {
                for (((_, run), batch), slices) in self.contestants.iter_mut().zip(&batches).zip(&mut slices) {
                    slices.push(run(*batch).as_secs_f64() * 1e9 / *batch as f64);
                }
            }
            for ((name, _), slices) in self.contestants.iter().zip(slices) {
                if round >= WARM_UP {
                    times.0.entry(name).or_default().push(median(&slices));
                }
            }
        }
        times
    }
}

/// How many operations fill a slice. The fastest of some runs says so, as others may be first ones or disturbed.
fn batch(run: &mut Run<'_>) -> usize {
    let mut batch = 1;
    while (0..5).map(|_| run(batch)).min() < Some(SLICE / 2) {
        batch *= 2;
    }
    batch
}

/// What an operation of each contestant took in each round, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Times(BTreeMap<&'static str, Vec<f64>>);

impl Times {
    fn of(&self, name: &str) -> &[f64] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Everybody who took part.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Prints what one took.
    pub(crate) fn print(&self, figure: &str, name: &str) {
        print(figure, self.of(name), "ns");
    }

    /// Prints how many times longer one takes than another, round by round; nothing if one of them did not take part.
    pub(crate) fn print_ratio(&self, figure: &str, over: &str, under: &str) {
        let ratios: Vec<_> = self.of(over).iter().zip(self.of(under)).map(|(over, under)| over / under).collect();
        print(figure, &ratios, "ratio");
    }
}
