//! What a second thread brings.
//!
//! Two threads that pick from one balancer, each with a reader of its own, share the counters of every instance: requests in flight and
//! outcomes. A counter that the other processor wrote last has to be fetched from there, so the more instances there are for the same
//! traffic, the better. A loop that shares nothing takes part too: it shows what the machine gives to a second thread at all.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use discovery_core::Reader;
use discovery_core::picker::{PowerOfTwo, RoundRobin};

use super::INSTANCES;
use super::ours::{picks, reader};
use crate::Result;
use crate::measure::{ROUNDS, WARM_UP, median, print};

/// How long the threads run.
const WINDOW: Duration = Duration::from_millis(50);
/// How many slices make a figure, and how often the threads run until there are so many.
const ENOUGH: usize = 100;
const TRIES: usize = 40;
/// Operations between two looks at the clock: some microseconds, or a hundred of them where the threads do more than pick.
const SLICE: usize = 128;
/// A slice that takes longer was interrupted.
const AWAY: Duration = Duration::from_millis(1);

pub(super) async fn run() -> Result<()> {
    let shared = |reader: Reader| (reader.clone(), reader);
    let mut pairs = vec![
        ("pick.scaling_2_threads", shared(p2c(INSTANCES).await?)),
        ("pick.scaling_2_threads_n1000", shared(p2c(1000).await?)),
        ("pick.scaling_2_threads_rr", shared(reader(vec![1; INSTANCES], RoundRobin::new()).await?)),
        // Two balancers over the same instances, with counters of their own.
        ("pick.scaling_2_threads_apart", (p2c(INSTANCES).await?, p2c(INSTANCES).await?)),
    ];
    tokio::task::block_in_place(|| {
        for (name, (first, second)) in &mut pairs {
            let rounds = (0..WARM_UP + ROUNDS).map(|_| {
                let ours = gain(|times| picks(first, times), |times| picks(second, times));
                ours / gain(alone(3), alone(3))
            });
            print(name, &rounds.skip(WARM_UP).collect::<Vec<_>>(), "ratio");
        }
        // A request is more than its pick: here each thread does a microsecond of its own after every pick.
        let (first, second) = &mut pairs[0].1;
        let rounds = (0..WARM_UP + ROUNDS).map(|_| gain(at_work(first), at_work(second)) / gain(alone(3), alone(3)));
        print("pick.scaling_2_threads_at_work", &rounds.skip(WARM_UP).collect::<Vec<_>>(), "ratio");
    });
    Ok(())
}

async fn p2c(instances: usize) -> Result<Reader> {
    reader(vec![1; instances], PowerOfTwo).await
}

/// So many atomic additions, to a counter that nobody else knows. A pick has three.
fn alone(additions: usize) -> impl FnMut(usize) + Send {
    // On a line of its own, wherever the two are put.
    let counters = Box::new([const { AtomicU64::new(0) }; 32]);
    move |times| {
        let counter = black_box(&counters[16]);
        for _ in 0..additions * times {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn at_work(reader: &mut Reader) -> impl FnMut(usize) + Send {
    let mut work = alone(150);
    move |times| {
        for _ in 0..times {
            picks(reader, 1);
            work(1);
        }
    }
}

/// The throughput of two threads over twice that of one.
fn gain(mut first: impl FnMut(usize) + Send, mut second: impl FnMut(usize) + Send) -> f64 {
    let alone = throughput(&slices(&mut first, &Barrier::new(1)));
    let (mut beside_second, mut beside_first) = (Vec::new(), Vec::new());
    // On a busy machine it may take some tries until both are at work together.
    for _ in 0..TRIES {
        let barrier = Barrier::new(2);
        let (ours, others) = std::thread::scope(|scope| {
            let other = scope.spawn(|| slices(&mut second, &barrier));
            (slices(&mut first, &barrier), other.join().unwrap_or_default())
        });
        beside_second.extend(beside(&ours, &others));
        beside_first.extend(beside(&others, &ours));
        if beside_second.len().min(beside_first.len()) >= ENOUGH {
            break;
        }
    }
    (throughput(&beside_second) + throughput(&beside_first)) / (2.0 * alone)
}

/// When some operations began and ended.
type Slice = (Instant, Instant);

fn slices(work: &mut impl FnMut(usize), barrier: &Barrier) -> Vec<Slice> {
    let mut slices = Vec::with_capacity(1 << 16);
    barrier.wait();
    let (begun, mut last) = (Instant::now(), Instant::now());
    while last - begun < WINDOW {
        work(SLICE);
        let now = Instant::now();
        slices.push((last, now));
        last = now;
    }
    slices
}

/// The slices during which the other thread was at work too: a machine that has other things to do seldom runs both at once.
fn beside(slices: &[Slice], others: &[Slice]) -> Vec<Slice> {
    let is_beside = |(begun, ended): &&Slice| {
        let from = others.partition_point(|other| other.1 <= *begun);
        let until = others.partition_point(|other| other.0 < *ended);
        let covering = others.get(from..until).unwrap_or_default();
        until < others.len() && !covering.is_empty() && covering.iter().all(|(begun, ended)| *ended - *begun < AWAY)
    };
    slices.iter().filter(is_beside).copied().collect()
}

/// Operations a second, from the middle one of the slices.
fn throughput(slices: &[Slice]) -> f64 {
    let seconds: Vec<_> = slices.iter().map(|(begun, ended)| (*ended - *begun).as_secs_f64()).collect();
    SLICE as f64 / median(&seconds)
}
