//! What the simulation found about registrations, and the faults of leases and writes, each as a schedule.

use discovery_core::simulation::{Denial, Schedule, Step, Wire};

use super::{millis, passes, policy, stage, when};

/// Nothing that a registration waits for may be taken for its removal.
#[test]
fn r01_closing_before_the_store_answered_is_no_success() {
    let schedule = Schedule::new(7, policy())
        .at(millis(0), Step::Open)
        .at(millis(10), Step::Wire(0, Wire::Refused))
        .at(millis(1_000), Step::Register(0, "pay", "a"))
        .at(millis(2_000), Step::Close(0));
    let report = passes(&schedule);
    when(&report, &["wish 0 is registered: Closed"]);
}

/// A lease that was lost, and with it the record; then the store goes back to when both stood, and the lease lives again.
#[test]
fn r04_a_record_of_ones_own_that_a_backup_brought_back_supersedes_nobody() {
    for restore in [Step::Restore(millis(3_000)), Step::RestoreBehindProxy(millis(3_000))] {
        let schedule = stage().at(millis(2_000), Step::ExpireEarly(0)).at(millis(4_500), restore);
        let report = passes(&schedule);
        assert!(!report.trace.iter().any(|line| line.contains("Superseded")));
    }
}

/// The same once more, after the record was written anew: the lease that it hangs on tells whose it is, however often that happens.
#[test]
fn r04_a_record_of_ones_own_that_backups_brought_back_twice_supersedes_nobody() {
    let schedule = stage()
        .at(millis(2_000), Step::ExpireEarly(0))
        .at(millis(4_500), Step::Restore(millis(3_000)))
        .at(millis(5_500), Step::Restore(millis(4_000)))
        .at(millis(6_000), Step::Update(0, "pay", "a"));
    let report = passes(&schedule);
    assert!(!report.trace.iter().any(|line| line.contains("Superseded")));
}

/// The lease outlives the restore, and so does the registration; but what stands is what was written before the last update.
#[test]
fn r07_an_older_record_that_a_backup_brought_back_is_written_anew() {
    for restore in [Step::Restore(millis(3_000)), Step::RestoreBehindProxy(millis(3_000))] {
        passes(&stage().at(millis(3_000), Step::Update(0, "pay", "a")).at(millis(4_500), restore));
    }
}

/// Even so, whoever is newer stays: the former owner names a lease of its own only where its record stands on that.
#[test]
fn r06_a_former_owner_does_not_return_behind_a_newer_one_that_left() {
    let schedule = stage()
        .at(millis(1_000), Step::ExpireEarly(0))
        .at(millis(3_000), Step::Register(1, "pay", "a"))
        .at(millis(3_010), Step::Deregister(1, "pay", "a"))
        .at(millis(3_020), Step::Update(0, "pay", "a"));
    let report = passes(&schedule);
    when(&report, &["wish 0 is updated to 3: Superseded"]);
}

/// Writes that arrive up to a TTL late, behind updates.
#[test]
fn r07_a_late_write_does_not_undo_an_update() {
    for seed in 0..200 {
        let mut schedule = Schedule::new(seed, policy())
            .at(millis(0), Step::Open)
            .at(millis(100), Step::Register(0, "pay", "a"))
            .at(millis(500), Step::Flaky(0, 60));
        for n in 0..5 {
            schedule = schedule.at(millis(600 + n * 700), Step::Update(0, "pay", "a"));
        }
        passes(&schedule.at(millis(8_000), Step::Flaky(0, 0)));
    }
}

#[test]
fn r02_a_write_that_arrives_behind_the_removal_is_removed() {
    for seed in 0..100 {
        let schedule = Schedule::new(seed, policy())
            .at(millis(0), Step::Open)
            .at(millis(100), Step::Register(0, "pay", "b"))
            .at(millis(500), Step::Flaky(0, 60))
            .at(millis(600), Step::Register(0, "pay", "a"))
            .at(millis(1_500), Step::Update(0, "pay", "a"))
            .at(millis(2_000), Step::Deregister(0, "pay", "a"))
            .at(millis(6_000), Step::Flaky(0, 0));
        passes(&schedule);
    }
}

#[test]
fn r03_a_killed_process_is_gone_within_its_ttl() {
    let report = passes(&stage().at(millis(2_000), Step::Kill(0)));
    let gone = when(&report, &["the store is at 2: delete /discovery/pay/a"]);
    assert!(gone <= millis(2_000) + policy().ttl, "gone after {gone:?}");
    assert!(when(&report, &["client 1 sees pay: []", "live"]) <= gone + millis(10));
}

#[test]
fn r05_a_restart_that_kept_its_data_is_survived_without_a_write() {
    let report = passes(&stage().at(millis(2_000), Step::Restart).at(millis(9_000), Step::Cut(0)));
    let writes = report.trace.iter().filter(|line| line.contains("client 0 Write")).count();
    assert_eq!(writes, 1, "{}", report.trace.join("\n"));
}

#[test]
fn r11_what_cannot_be_written_is_not_registered() {
    let schedule = stage()
        .at(millis(1_000), Step::Deny(0, Denial::Writes))
        .at(millis(1_100), Step::ExpireEarly(0))
        .at(millis(9_000), Step::Deny(0, Denial::Nothing));
    passes(&schedule);
}

/// A wait counts from the failure, and not from when the request was made.
#[test]
fn r04_a_write_that_timed_out_is_tried_again_after_its_wait() {
    let schedule = Schedule::new(7, policy())
        .at(millis(0), Step::Open)
        .at(millis(10), Step::Register(0, "pay", "b"))
        .at(millis(500), Step::Deny(0, Denial::Writes))
        .at(millis(600), Step::Register(0, "pay", "a"))
        .at(millis(700), Step::Update(0, "pay", "b"))
        .at(millis(9_000), Step::Deny(0, Denial::Nothing));
    let report = passes(&schedule);
    // What only a person can mend waits for half the cap at least.
    let writes =
        report.trace.iter().filter(|line| line.contains("Write /discovery/pay/b") && line.contains("Error")).count();
    assert!((2..=17).contains(&writes), "{writes} tries in 8.3 s, with waits of 0.5 s at least");
}
