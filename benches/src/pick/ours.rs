//! Our pickers, and the floors that they stand on.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use discovery_core::picker::{PeakEwma, PowerOfTwo, RoundRobin, WeightedRandom, WeightedRoundRobin};
use discovery_core::{BalancerOptions, Context, Outcome, PickerFactory, Reader};

use super::INSTANCES;
use crate::Result;
use crate::fleet::Fleet;
use crate::measure::Contest;

pub(super) async fn enter(contest: &mut Contest<'_>) -> Result<()> {
    let floor = AtomicU64::new(0);
    contest.add("floor", move |times| {
        let floor = black_box(&floor);
        for _ in 0..times {
            floor.fetch_add(1, Ordering::Relaxed);
        }
    });
    contest.add("two_clock_reads", |times| {
        for _ in 0..times {
            black_box((Instant::now(), Instant::now()));
        }
    });
    contest.add("bare_p2c", bare_p2c());
    contest.add("bare_rr", bare_rr());
    for (name, size) in [("p2c_n10", 10), ("p2c_n100", 100), ("p2c_n1000", 1000)] {
        let mut reader = reader(vec![1; size], PowerOfTwo).await?;
        contest.add(name, move |times| picks(&mut reader, times));
    }
    let mut ewma = reader(vec![1; INSTANCES], PeakEwma).await?;
    // Whoever has no reader pays for the clock at every pick, as does one whose picks come more slowly.
    let shared = ewma.balancer().clone();
    contest.add("ewma", move |times| picks(&mut ewma, times));
    contest.add("ewma_all_timed", move |times| {
        for _ in 0..times {
            if let Ok(pick) = shared.pick(&Context::default()) {
                pick.finish(Outcome::Success);
            }
        }
    });
    let weights: Vec<_> = (1..).take(INSTANCES).collect();
    let mut rr = reader(weights.clone(), RoundRobin::new()).await?;
    let mut swrr = reader(weights.clone(), WeightedRoundRobin::new()).await?;
    let mut random = reader(weights, WeightedRandom).await?;
    contest.add("rr", move |times| picks(&mut rr, times));
    contest.add("swrr", move |times| picks(&mut swrr, times));
    contest.add("weighted_random", move |times| picks(&mut random, times));
    Ok(())
}

/// Requests in flight at one instance, on a cache line of their own.
#[derive(Default)]
#[repr(align(128))]
struct Pending(AtomicU64);

fn pending() -> Vec<Pending> {
    (0..INSTANCES).map(|_| Pending::default()).collect()
}

/// Power of two choices with nothing around it: no set that may change, no health, no outcome, no value to give away. It is the least
/// that any picker pays which counts what is in flight.
fn bare_p2c() -> impl FnMut(usize) {
    let pending = pending();
    move |times| {
        let pending = black_box(&pending[..]);
        for _ in 0..times {
            let (a, b) = (&pending[fastrand::usize(..INSTANCES)].0, &pending[fastrand::usize(..INSTANCES)].0);
            let picked = if b.load(Ordering::Relaxed) < a.load(Ordering::Relaxed) { b } else { a };
            picked.fetch_add(1, Ordering::Relaxed);
            black_box(picked).fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Round robin with nothing around it: one addition to take turns, and two to count what is in flight.
fn bare_rr() -> impl FnMut(usize) {
    let (turn, pending) = (AtomicUsize::new(0), pending());
    move |times| {
        let pending = black_box(&pending[..]);
        for _ in 0..times {
            let picked = &pending[turn.fetch_add(1, Ordering::Relaxed) % INSTANCES].0;
            picked.fetch_add(1, Ordering::Relaxed);
            black_box(picked).fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A reader of a balancer over instances with these weights, which has picked once.
pub(super) async fn reader(weights: Vec<u32>, factory: impl PickerFactory) -> Result<Reader> {
    let mut reader = Fleet::new(weights)?.balancer(factory, BalancerOptions::default()).await?.reader();
    reader.pick(&Context::default())?.finish(Outcome::Success);
    Ok(reader)
}

/// Picks and reports so many times.
pub(super) fn picks(reader: &mut Reader, times: usize) {
    for _ in 0..times {
        // It never fails while the members stay, which the first pick has shown.
        if let Ok(pick) = reader.pick(&Context::default()) {
            pick.finish(Outcome::Success);
        }
    }
}
