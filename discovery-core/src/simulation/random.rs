//! Schedules that chance makes.

use std::time::Duration;

use fastrand::Rng;

use super::lies::{Denial, Lag, Lossy, Wire, millis};
use super::schedule::{Schedule, Step};
use crate::Policy;

const SERVICES: [&str; 2] = ["pay", "ship"];
const IDS: [&str; 4] = ["a", "b", "c", "d"];
/// Ids that only operators write.
const BY_HAND: [&str; 2] = ["x", "y"];

impl Schedule {
    /// Makes the schedule of a seed.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut schedule = Self::new(seed, policy(&mut rng));
        let mut clients = rng.usize(2..=4);
        for _ in 0..clients {
            schedule = schedule.at(Duration::ZERO, Step::Open);
        }
        let end = millis(&mut rng, 8_000, 30_000);
        let steps = rng.usize(15..=50);
        let mut times: Vec<_> = (0..steps).map(|_| Duration::from_millis(rng.u64(1..end.as_millis() as u64))).collect();
        times.sort_unstable();
        // Some schedules are about few faults at a time, others about all of them.
        let wild = rng.u8(20..=60);
        for at in times {
            let step = if rng.u8(0..100) < wild { fault(&mut rng, clients) } else { deed(&mut rng, clients) };
            if step == Step::Open {
                clients += 1;
            }
            let client = client_of(&step);
            schedule = schedule.at(at, step);
            // What is switched on is switched off again, mostly before the end.
            if let (Some(client), true) = (client, rng.bool()) {
                let until = at + millis(&mut rng, 200, 12_000);
                if until < end {
                    schedule = schedule.at(until, Step::Wire(client, Wire::Works));
                }
            }
        }
        schedule.steps.sort_by_key(|(at, _)| *at);
        schedule.calm = schedule.calm.max(end);
        schedule
    }
}

/// Mostly short bounds, so that much happens in little time; sometimes those that everybody has.
fn policy(rng: &mut Rng) -> Policy {
    if rng.u8(0..10) == 0 {
        return Policy::default();
    }
    let seconds = Duration::from_secs;
    Policy {
        ttl: seconds(rng.u64(2..=5)),
        timeout: millis(rng, 500, 1_500),
        connect_timeout: millis(rng, 500, 2_000),
        backoff: millis(rng, 500, 3_000),
        probe: millis(rng, 500, 2_000),
        reconcile: seconds(rng.u64(2..=8)),
        ..Policy::default()
    }
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(0..of.len())]
}

/// What users and operators do.
fn deed(rng: &mut Rng, clients: usize) -> Step {
    let client = rng.usize(0..clients);
    let (service, id) = (pick(rng, &SERVICES), pick(rng, &IDS));
    match rng.u8(0..100) {
        0..=34 => Step::Register(client, service, id),
        35..=49 => Step::Update(client, service, id),
        50..=59 => Step::Deregister(client, service, id),
        60..=62 => Step::Drop(client, service, id),
        63..=82 => Step::Watch(client, service),
        83..=85 => Step::WatchNames(client),
        86..=87 => Step::Unwatch(client, service),
        88 => Step::Close(client),
        89..=90 => Step::Kill(client),
        91..=93 => Step::Open,
        94..=95 => Step::Put(service, pick(rng, &BY_HAND)),
        96 => Step::Delete(service, pick(rng, &BY_HAND)),
        97 => Step::Spoil(service, pick(rng, &BY_HAND)),
        98 => Step::Put(service, id),
        _ => Step::Delete(service, id),
    }
}

/// What goes wrong.
fn fault(rng: &mut Rng, clients: usize) -> Step {
    let client = rng.usize(0..clients);
    let back = millis(rng, 100, 10_000);
    match rng.u8(0..100) {
        0..=9 => Step::Wire(client, Wire::Refused),
        10..=17 => Step::Wire(client, Wire::Silent),
        18..=23 => Step::Cut(client),
        24..=29 => Step::Freeze(client),
        30..=42 => Step::Flaky(client, pick(rng, &[0, 5, 20, 50, 80])),
        43..=56 => Step::Lossy(
            client,
            Lossy { lost: pick(rng, &[0, 20, 60, 100]), doubled: pick(rng, &[0, 30]), late: pick(rng, &[0, 20, 60]) },
        ),
        57..=64 => Step::Lag(client, rng.bool().then_some(Lag { by: back, catches_up: rng.bool() })),
        65..=70 => Step::Deny(
            client,
            pick(rng, &[Denial::Nothing, Denial::Nothing, Denial::Reads, Denial::Writes, Denial::Everything]),
        ),
        71..=73 => Step::ExpireLate(pick(rng, &[Duration::ZERO, Duration::from_secs(3)])),
        74..=80 => Step::ExpireEarly(client),
        81..=87 => Step::Compact,
        88..=90 => Step::Restart,
        91..=94 => Step::RestartEmpty(rng.bool()),
        95..=97 => Step::Restore(back),
        _ => Step::RestoreBehindProxy(back),
    }
}

fn client_of(step: &Step) -> Option<usize> {
    match step {
        Step::Wire(client, _) | Step::Cut(client) | Step::Freeze(client) => Some(*client),
        _ => None,
    }
}
