//! The engine over a store that lies: schedules that chance makes, and named ones for each class of faults and for what was found.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod registering;
mod watching;

use std::time::Duration;

use discovery_core::Policy;
use discovery_core::simulation::{Keep, Report, Schedule, Step, run};

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Short bounds, with a reconciliation that comes after what a test is about.
fn policy() -> Policy {
    let mut policy = Policy::default();
    (policy.ttl, policy.timeout, policy.connect_timeout) = (millis(3_000), millis(500), millis(500));
    (policy.backoff, policy.probe, policy.reconcile) = (millis(1_000), millis(1_000), millis(5_000));
    policy
}

/// Two clients; the first has registered `pay/a`, the second watches.
fn stage() -> Schedule {
    Schedule::new(7, policy())
        .at(millis(0), Step::Open)
        .at(millis(0), Step::Open)
        .at(millis(100), Step::Register(0, "pay", "a"))
        .at(millis(200), Step::Watch(1, "pay"))
}

/// Plays a schedule twice; it has to go the same way, and as the contracts say.
fn passes(schedule: &Schedule) -> Report {
    let report = run(schedule, Keep::Lines).unwrap();
    let again = run(schedule, Keep::Lines).unwrap();
    let differs = report.trace.iter().zip(&again.trace).find(|(first, second)| first != second);
    assert_eq!(report.hash, again.hash, "the same seed went another way: {differs:?}");
    assert!(report.divergences.is_empty(), "{}\n{:#?}", report.trace.join("\n"), report.divergences);
    report
}

/// The first time at which a line with these words is in the trace.
fn when(report: &Report, words: &[&str]) -> Duration {
    let line = report.trace.iter().find(|line| words.iter().all(|word| line.contains(word)));
    let line = line.unwrap_or_else(|| panic!("nothing says {words:?}:\n{}", report.trace.join("\n")));
    time(line)
}

/// The last line with these words.
fn last<'a>(report: &'a Report, words: &str) -> &'a str {
    let line = report.trace.iter().rev().find(|line| line.contains(words));
    line.unwrap_or_else(|| panic!("nothing says {words:?}:\n{}", report.trace.join("\n")))
}

/// The time of a line.
fn time(line: &str) -> Duration {
    Duration::from_secs_f64(line.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn random_schedules_end_as_the_store_is() {
    // Four of many: one restores two backups within seconds, one refuses a second registration of an id on one handle, one loses the end
    // of a lease on which a late write left a record, and in one a takeover arrives after the record was written on the next lease.
    for seed in (0..150).chain([210_861, 303_364, 315_496, 365_583]) {
        let schedule = Schedule::random(seed);
        let report = run(&schedule, Keep::Hash).unwrap();
        assert!(report.divergences.is_empty(), "seed {seed}: {:#?}", report.divergences);
        if seed % 10 == 0 {
            assert_eq!(report.hash, run(&schedule, Keep::Hash).unwrap().hash, "seed {seed} went another way");
        }
    }
}

#[test]
fn a_seed_is_the_whole_of_a_schedule() {
    let (one, other) = (Schedule::random(3), Schedule::random(4));
    let hash = |schedule: &Schedule| run(schedule, Keep::Hash).unwrap().hash;
    assert_eq!(hash(&one), hash(&Schedule::random(3)));
    assert_ne!(hash(&one), hash(&other));
    let kept = run(&one, Keep::Lines).unwrap();
    assert_eq!(kept.hash, hash(&one), "keeping the trace changes it");
    assert!(kept.trace.len() > 100);
}
