//! Requests in flight and what became of them (P8), counted by picks with and without a reader while somebody sums up.

use std::sync::Arc;

use loom::thread::spawn;

use super::super::Outcome;
use super::super::latency::Timing;
use super::super::selection::Selection;
use super::super::tab::{Tab, Tabs};
use super::{Set, first, model};

/// What a reader does on its tab.
fn pick(tab: &Tab, outcome: Outcome) {
    let pick = first(tab.selection()).begin_counted(Timing::Off);
    tab.count(0);
    pick.finish(outcome);
}

fn begun(tabs: &Tabs, selection: &Selection) -> u64 {
    let member = first(selection);
    tabs.begun(member, || member.cell().flights().begun())
}

/// Whoever sums up while a reader goes on to a newer selection, and ends, finds each pick on the tab or in the instance's own counter.
#[test]
fn p08_a_sum_has_every_pick_once_while_a_reader_refreshes_and_drops() {
    let set = Set::new(&["a"]);
    model(move || {
        let tabs = Arc::<Tabs>::default();
        let [older, newer] = set.selections(&tabs);
        let tab = tabs.open(|| older.clone());
        pick(&tab, Outcome::Success);
        let reader = spawn({
            let tabs = tabs.clone();
            move || {
                let mut tab = tab;
                if tabs.renew(&mut tab, newer.clone()) {
                    pick(&tab, Outcome::Success);
                } else {
                    first(&newer).begin(Timing::Off).finish(Outcome::Success);
                }
                tabs.close(&tab);
            }
        });
        let [one, other] = [begun(&tabs, &older), begun(&tabs, &older)];
        assert!(1 <= one && one <= other && other <= 2, "{one}, then {other}");
        reader.join().unwrap();
        assert_eq!(begun(&tabs, &older), 2);
    });
}

/// A pick without a reader adds to the counter into which a tab is entered at that moment.
#[test]
fn p08_picks_with_and_without_a_reader_do_not_overwrite_each_other() {
    let set = Set::new(&["a", "b"]);
    model(move || {
        let tabs = Arc::<Tabs>::default();
        let [selection, _] = set.selections(&tabs);
        let tab = tabs.open(|| selection.clone());
        let reader = spawn({
            let tabs = tabs.clone();
            move || {
                pick(&tab, Outcome::Success);
                tabs.close(&tab);
            }
        });
        let plain = spawn({
            let selection = selection.clone();
            move || first(&selection).begin(Timing::Off).finish(Outcome::Success)
        });
        reader.join().unwrap();
        plain.join().unwrap();
        let member = first(&selection);
        assert_eq!((begun(&tabs, &selection), member.count(Outcome::Success), member.pending()), (2, 2, 0));
        assert_eq!(selection.first.members[1].count(Outcome::Success), 0);
    });
}

/// What is in flight is seen by others while it is, and in the end everything that was begun has an outcome.
#[test]
fn p08_nothing_in_flight_is_lost_and_outcomes_add_up() {
    let set = Set::new(&["a"]);
    model(move || {
        let tabs = Arc::<Tabs>::default();
        let [selection, _] = set.selections(&tabs);
        let threads = [Some(Outcome::Failure), None].map(|outcome| {
            let selection = selection.clone();
            spawn(move || {
                let pick = first(&selection).begin(Timing::Off);
                assert!((1..=3).contains(&first(&selection).pending()), "its own is among them");
                match outcome {
                    Some(outcome) => pick.finish(outcome),
                    None => pick.discard(),
                }
            })
        });
        let member = first(&selection);
        let open = member.begin(Timing::Off);
        assert!((1..=3).contains(&member.pending()));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(member.pending(), 1);
        drop(open);
        let counts = [Outcome::Success, Outcome::Failure, Outcome::Cancelled].map(|outcome| member.count(outcome));
        assert_eq!((begun(&tabs, &selection), counts, member.pending()), (3, [0, 1, 1], 0));
    });
}

/// Successes are what is left of what was begun, so a request that is seen nowhere else would count as one.
fn successes_are_never_too_many(request: fn(&Selection, &Tab)) {
    let set = Set::new(&["a"]);
    model(move || {
        let tabs = Arc::<Tabs>::default();
        let [selection, _] = set.selections(&tabs);
        let tab = tabs.open(|| selection.clone());
        // Loom lets the thread that it is in go first, and so finds what others see of it too early.
        let counting = spawn({
            let selection = selection.clone();
            move || assert_eq!(first(&selection).count(Outcome::Success), 0)
        });
        request(&selection, &tab);
        counting.join().unwrap();
        assert_eq!(first(&selection).count(Outcome::Success), 0);
    });
}

#[test]
fn p08_successes_are_never_too_many_whoever_counts_meanwhile() {
    successes_are_never_too_many(|_, tab| pick(tab, Outcome::Failure));
    successes_are_never_too_many(|selection, _| first(selection).begin(Timing::Off).discard());
}
