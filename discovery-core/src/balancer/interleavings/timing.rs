//! What is known of an instance's time, written and read by many: whoever reads finds what somebody wrote, never half of it.

use std::sync::{Arc, Mutex};

use loom::thread::spawn;

use super::super::Outcome;
use super::super::latency::{Latency, Timing};
use super::model;
use crate::clock::{Clock, ManualClock, Moment};

const MS: u64 = 1_000_000;

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * MS)
}

/// Clocks that stand at these times.
fn clock(millis: u64) -> Clock {
    let (clock, hand): (Clock, ManualClock) = Clock::manual();
    hand.advance(std::time::Duration::from_millis(millis));
    clock
}

/// A request that began and ended at these times.
type Request = (u64, u64, Outcome);

fn serve(latency: &Latency, (begun, ended, outcome): Request) {
    latency.end(Timing::Since(at(begun)), &clock(ended), Some(outcome));
}

/// What is known after these requests, one after the other; each list in a model of its own, as the orders that follow need it only once.
fn known<const N: usize>(heard: [&'static [Request]; N]) -> Vec<Option<f32>> {
    let found = Arc::new(Mutex::new(Vec::new()));
    for requests in heard {
        let found = found.clone();
        model(move || {
            let latency = Latency::default();
            requests.iter().for_each(|request| serve(&latency, *request));
            found.lock().unwrap().push(latency.expected(at(9_000), 0));
        });
    }
    std::mem::take(&mut *found.lock().unwrap())
}

/// Of two answers at once one may go unheard; what is known follows from those that were heard, one after the other.
fn never_torn(one: Request, other: Request, heard: [&'static [Request]; 4]) {
    let possible = known(heard);
    model(move || {
        let latency = Arc::new(Latency::default());
        let thread = spawn({
            let latency = latency.clone();
            move || serve(&latency, one)
        });
        serve(&latency, other);
        for _ in 0..2 {
            let found = latency.expected(at(9_000), 0);
            assert!(possible.contains(&found), "{found:?} of {possible:?}");
        }
        thread.join().unwrap();
        let found = latency.expected(at(9_000), 0);
        assert!(possible.contains(&found), "{found:?} of {possible:?}");
        // Whoever is heard after the others is not lost.
        serve(&latency, (0, 9_000, Outcome::Success));
        assert_eq!(latency.expected(at(9_000), 0), Some(9e9));
    });
}

#[test]
fn an_average_is_whole_whoever_writes_it() {
    const PEAK: Request = (0, 3_000, Outcome::Success);
    const FAST: Request = (5_990, 6_000, Outcome::Success);
    const FAILED: Request = (100, 110, Outcome::Failure);
    never_torn(PEAK, FAST, [&[PEAK], &[FAST], &[PEAK, FAST], &[FAST, PEAK]]);
    never_torn(FAILED, FAST, [&[FAILED], &[FAST], &[FAILED, FAST], &[FAST, FAILED]]);
    never_torn(PEAK, FAILED, [&[PEAK], &[FAILED], &[PEAK, FAILED], &[FAILED, PEAK]]);
}

/// The silence of an instance is the time since something happened, whatever happens meanwhile, and never the time since the clock began.
#[test]
fn a_silence_begins_with_something_that_happened() {
    model(|| {
        let latency = Arc::new(Latency::default());
        let timed = spawn({
            let latency = latency.clone();
            move || {
                latency.begin(Timing::Since(at(5_000)), 0);
                serve(&latency, (5_000, 5_100, Outcome::Success));
            }
        });
        let skipped = spawn({
            let latency = latency.clone();
            move || {
                latency.begin(Timing::Skipped, 0);
                latency.begin(Timing::Since(at(5_200)), 1);
            }
        });
        // Since one of the three moments, or as little as the answer took, which has faded a little; or none of it is seen yet.
        let possible = [None, Some(1_000), Some(900), Some(800), Some(91)];
        let known = || latency.expected(at(6_000), 2).map(|nanos| (nanos / 1e6).round() as u32);
        let found = known();
        assert!(possible.contains(&found), "{found:?}");
        timed.join().unwrap();
        skipped.join().unwrap();
        let found = known();
        // Loom forgets that a store was overwritten if another thread read it, so any of the moments may be found in the end.
        assert!(possible[1..].contains(&found), "{found:?}");
    });
}
