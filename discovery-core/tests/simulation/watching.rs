//! The faults of watches that etcd documents, each as a schedule: what is missed, doubled, reordered, compacted, stale or rolled back.

use std::time::Duration;

use discovery_core::Policy;
use discovery_core::simulation::{Lag, Lossy, Schedule, Step, Wire};

use super::{last, millis, passes, policy, stage, time, when};

const LOST: Lossy = Lossy { lost: 100, doubled: 0, late: 0 };

/// Reconciliation comes after five quarters of its interval at the latest, waits a second for what is under way, and may have to count
/// three times.
fn reconciled() -> Duration {
    policy().reconcile.mul_f64(1.25) + millis(6_000)
}

/// The store says that the record changed, and the watch hears nothing; reconciliation finds it within its bound.
#[test]
fn w08_events_that_are_lost_after_a_reconnect_are_found() {
    let schedule = stage()
        .at(millis(1_000), Step::Cut(1))
        .at(millis(3_000), Step::Lossy(1, LOST))
        .at(millis(3_100), Step::Update(0, "pay", "a"))
        .at(millis(3_200), Step::Register(0, "pay", "b"))
        .at(millis(3_300), Step::Deregister(0, "pay", "b"))
        .at(millis(3_400), Step::Lossy(1, Lossy::default()));
    let report = passes(&schedule);
    let seen = when(&report, &["client 1 sees pay: [a=2]"]);
    assert!(seen <= millis(3_400) + reconciled(), "seen after {seen:?}");
}

#[test]
fn w08_a_lost_removal_is_found_by_the_count() {
    let schedule = stage()
        .at(millis(500), Step::Register(0, "pay", "b"))
        .at(millis(1_000), Step::Lossy(1, LOST))
        .at(millis(1_100), Step::Deregister(0, "pay", "b"))
        .at(millis(1_200), Step::Lossy(1, Lossy::default()));
    let report = passes(&schedule);
    let gone = when(&report, &["client 1 sees pay: [a=1]", "live"]);
    assert!(gone < millis(500), "the first set has one instance");
    let last = last(&report, "sees pay");
    assert!(last.contains("[a=1] live"), "{last}");
}

/// Changes of one revision belong together, and a watch that is told only some of them finds the others.
#[test]
fn w02_removals_of_one_revision_that_are_told_in_part_are_found() {
    let mut torn = 0;
    for seed in 0..20 {
        let mut schedule = Schedule::new(seed, policy()).at(millis(0), Step::Open).at(millis(0), Step::Open);
        for id in ["a", "b", "c", "d"] {
            schedule = schedule.at(millis(100), Step::Register(0, "pay", id));
        }
        let schedule = schedule
            .at(millis(200), Step::Watch(1, "pay"))
            .at(millis(1_000), Step::Lossy(1, Lossy { lost: 50, ..LOST }))
            .at(millis(1_100), Step::Kill(0))
            .at(millis(6_000), Step::Lossy(1, Lossy::default()));
        let report = passes(&schedule);
        let ended = when(&report, &["the store ends leases"]);
        let seen = report.trace.iter().filter(|line| line.contains("client 1 sees pay: ["));
        let between = seen.filter(|line| (1..4).contains(&line.matches('=').count()) && line.contains("live"));
        torn += usize::from(between.count() > 0);
        let empty = time(last(&report, "client 1 sees pay: [] live"));
        assert!(empty <= ended + reconciled() + policy().ttl, "seed {seed}: {empty:?}");
    }
    assert!(torn >= 10, "only {torn} of 20 were told in part");
}

/// What is told twice, seconds late and behind later words of the same key changes nothing; whatever went back would be a divergence.
#[test]
fn w10_events_that_are_doubled_and_out_of_order_after_a_resume_change_nothing() {
    let mut schedule = stage().at(millis(1_000), Step::Cut(1));
    schedule = schedule.at(millis(2_500), Step::Lossy(1, Lossy { lost: 0, doubled: 100, late: 60 }));
    for n in 0..20 {
        schedule = schedule.at(millis(3_000 + n * 150), Step::Update(0, "pay", "a"));
        let step = if n % 2 == 0 { Step::Register(0, "pay", "b") } else { Step::Deregister(0, "pay", "b") };
        schedule = schedule.at(millis(3_050 + n * 150), step);
    }
    passes(&schedule.at(millis(12_000), Step::Lossy(1, Lossy::default())));
}

#[test]
fn w02_a_watch_from_a_compacted_revision_reads_the_set_anew() {
    let schedule = stage()
        .at(millis(1_000), Step::Wire(1, Wire::Silent))
        .at(millis(1_100), Step::Update(0, "pay", "a"))
        .at(millis(1_200), Step::Compact)
        .at(millis(6_000), Step::Wire(1, Wire::Works))
        .at(millis(9_000), Step::Lossy(1, LOST))
        .at(millis(9_100), Step::Update(0, "pay", "a"))
        .at(millis(9_200), Step::Lossy(1, Lossy::default()))
        .at(millis(9_300), Step::Compact);
    let report = passes(&schedule);
    assert!(when(&report, &["client 1 sees pay: [a=3]"]) < millis(9_900), "the set was not read anew at once");
}

/// A member that is cut off answers from the past, and what changed since is never told: the next comparison finds it.
#[test]
fn w08_a_stale_read_from_a_partitioned_member_is_found() {
    let lag = Lag { by: millis(4_000), catches_up: false };
    let schedule = stage()
        .at(millis(3_000), Step::Update(0, "pay", "a"))
        .at(millis(3_000), Step::Register(0, "pay", "b"))
        .at(millis(5_000), Step::Lag(1, Some(lag)))
        .at(millis(5_100), Step::Cut(1))
        .at(millis(7_500), Step::Lag(1, None));
    let report = passes(&schedule);
    let stale = report.trace.iter().position(|line| line.contains("Open") && line.contains("of state 1 "));
    assert!(stale.is_some(), "nothing was read from the past:\n{}", report.trace.join("\n"));
    let last = last(&report, "client 1 sees pay");
    assert!(last.contains("[a=2 b=3] live"), "{last}");
}

/// A stream on which nothing is told any more, though its connection answers: a missing progress notification looks the same.
#[test]
fn w08_a_stream_without_progress_is_compared_with_the_store() {
    let mut schedule = stage().at(millis(1_000), Step::Lossy(1, LOST));
    for n in 0..10 {
        schedule = schedule.at(millis(2_000 + n * 1_000), Step::Update(0, "pay", "a"));
    }
    let report = passes(&schedule.at(millis(30_000), Step::Lossy(1, Lossy::default())));
    let seen = when(&report, &["client 1 sees pay: [a=11]"]);
    assert!(seen <= millis(11_000) + reconciled() * 2, "seen after {seen:?}");
}

#[test]
fn w02_w09_a_revision_that_goes_back_after_a_restore_is_compared() {
    for step in [Step::Restore(millis(3_000)), Step::RestoreBehindProxy(millis(3_000))] {
        let schedule = stage()
            .at(millis(500), Step::Register(0, "pay", "b"))
            .at(millis(3_000), Step::Register(0, "pay", "c"))
            .at(millis(3_100), Step::Register(0, "pay", "d"))
            .at(millis(3_200), Step::Deregister(0, "pay", "b"))
            .at(millis(4_000), step);
        passes(&schedule);
    }
}

#[test]
fn w04_w09_a_store_that_restarts_empty_empties_nobodys_set() {
    for ahead in [false, true] {
        let schedule =
            stage().at(millis(500), Step::Register(0, "pay", "b")).at(millis(2_000), Step::RestartEmpty(ahead));
        let report = passes(&schedule);
        let sets = report.trace.iter().filter(|line| line.contains("client 1 sees pay"));
        assert_eq!(sets.filter(|line| line.contains("[]")).count(), 0, "the set was emptied");
    }
}

/// Nobody comes back to a store that lost everything: who was there stays for one grace, and then goes.
#[test]
fn w09_the_held_stay_for_a_grace_and_no_longer() {
    let schedule = stage().at(millis(2_000), Step::Kill(0)).at(millis(2_000), Step::RestartEmpty(false));
    let report = passes(&schedule);
    let held = when(&report, &["client 1 sees pay: [a=1]", "1 held"]);
    let stayed = time(last(&report, "client 1 sees pay: [] live")) - held;
    // Sets are looked at twice a second.
    assert!((policy().ttl..=policy().ttl + millis(500)).contains(&stayed), "{stayed:?}");
}

/// A connection that breaks again and again holds the dead for longer than one grace, and not for ever.
#[test]
fn w09_another_gap_begins_the_grace_anew() {
    let mut schedule = stage().at(millis(2_000), Step::Kill(0)).at(millis(2_000), Step::RestartEmpty(false));
    for second in 3..16 {
        schedule = schedule.at(millis(second * 1_000), Step::Cut(1));
    }
    let report = passes(&schedule);
    let held = time(last(&report, "client 1 sees pay: [a=1]"));
    assert!(held > millis(2_000) + policy().ttl * 2, "another gap did not begin the grace anew: {held:?}");
}

/// After an outage each client waits for one backoff at most, so that the grace is no shorter, however short the TTL is.
#[test]
fn w09_the_living_are_back_within_the_grace_however_short_the_ttl_is() {
    let mut short = Policy::default();
    short.ttl = millis(3_000);
    for (policy, seed) in [Policy::default(), short].into_iter().flat_map(|it| (0..10).map(move |n| (it.clone(), n))) {
        let mut schedule = Schedule::new(seed, policy)
            .at(millis(0), Step::Open)
            .at(millis(0), Step::Open)
            .at(millis(100), Step::Register(0, "pay", "a"))
            .at(millis(200), Step::Watch(1, "pay"))
            .at(millis(3_000), Step::RestartEmpty(false));
        for client in [0, 1] {
            schedule = schedule
                .at(millis(2_000), Step::Wire(client, Wire::Refused))
                .at(millis(60_000), Step::Wire(client, Wire::Works));
        }
        let report = passes(&schedule);
        let sets: Vec<_> = report.trace.iter().filter(|line| line.contains("client 1 sees pay: [")).collect();
        assert!(sets.iter().all(|line| line.contains("[a=1]")), "seed {seed}: {sets:#?}");
    }
}

/// A read that is never answered on a connection that works: found by the simulation, as nothing else had a deadline there.
#[test]
fn w01_a_first_read_that_is_never_answered_is_begun_anew() {
    let mut passed = 0;
    for at in 0..40 {
        let schedule = stage()
            .at(millis(1_000), Step::Flaky(1, 80))
            .at(millis(1_000 + at * 10), Step::Watch(1, "ship"))
            .at(millis(1_500 + at * 10), Step::Flaky(1, 0));
        passed += usize::from(passes(&schedule).divergences.is_empty());
    }
    assert_eq!(passed, 40);
}

/// What an operator spoils stays as it last was, also when the set is read anew.
#[test]
fn w06_the_last_good_value_of_a_spoilt_record_stays() {
    let schedule = stage()
        .at(millis(500), Step::Put("pay", "x"))
        .at(millis(1_500), Step::Spoil("pay", "x"))
        .at(millis(2_500), Step::Cut(1));
    let report = passes(&schedule);
    let last = last(&report, "client 1 sees pay");
    assert!(last.contains("[a=1 x=2] live"), "{last}");
}

/// Whoever reads while access is denied keeps what there was (W4).
#[test]
fn w04_denied_reads_empty_nothing() {
    use discovery_core::simulation::Denial;
    let schedule = stage()
        .at(millis(1_000), Step::Deny(1, Denial::Reads))
        .at(millis(1_100), Step::Cut(1))
        .at(millis(9_000), Step::Deny(1, Denial::Nothing));
    let report = passes(&schedule);
    assert!(!report.trace.iter().any(|line| line.contains("client 1 sees pay: []")));
}
