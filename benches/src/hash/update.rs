//! What it costs to take in that an instance left, or that one joined.
//!
//! A leaver costs more after long churn: who comes next for its slots is known from the beginning, but only for half of them once everybody
//! has been replaced. So the figures are those of a service whose instances were all replaced, twice; the first changes are shown apart.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use discovery_core::picker::{ConsistentHash, Ketama};
use discovery_core::{Member, Picker, PickerFactory};

use super::{INSTANCES, members};
use crate::Result;
use crate::measure::Contest;

/// How many are replaced before the way back begins, on which those that left come back.
const REPLACED: usize = 1_000;
/// How many are replaced at first, before all begins anew.
const FIRST: usize = 8;

pub(super) async fn enter(contest: &mut Contest<'_>) -> Result<()> {
    let members = members(INSTANCES + REPLACED).await?;
    let churned = Rc::new(RefCell::new(Churn::new(ConsistentHash::new, &members)));
    (0..4 * REPLACED).for_each(|_| _ = churned.borrow_mut().change());
    let churn = churned.clone();
    contest.add_timed("update", move |times| (0..times).map(|_| churn.borrow_mut().change()).sum());
    let churn = churned.clone();
    contest.add_timed("leave", move |times| (0..times).map(|_| churn.borrow_mut().replace().0).sum());
    contest.add_timed("join", move |times| (0..times).map(|_| churned.borrow_mut().replace().1).sum());
    let mut first = Churn::new(ConsistentHash::new, &members);
    contest.add_timed("first_updates", move |times| {
        let change = |_| {
            if first.changes == 2 * FIRST {
                first.begin();
            }
            first.change()
        };
        (0..times).map(change).sum()
    });
    let mut ring = Churn::new(|| Ketama::new().with_unit(1), &members);
    contest.add_timed("own_ketama_rebuild", move |times| (0..times).map(|_| ring.change()).sum());
    Ok(())
}

/// A service of which one instance after the other is replaced: each time one leaves, then another joins.
struct Churn<F> {
    make: fn() -> F,
    factory: F,
    members: Vec<Member>,
    changes: usize,
    /// The picker that serves until the next one is there.
    picker: Box<dyn Picker>,
}

impl<F: PickerFactory> Churn<F> {
    fn new(make: fn() -> F, members: &[Member]) -> Self {
        let factory = make();
        let picker = factory.build(&members[..INSTANCES]);
        Self { make, factory, members: members.to_vec(), changes: 0, picker }
    }

    /// Forgets everything.
    fn begin(&mut self) {
        self.factory = (self.make)();
        self.picker = self.factory.build(&self.members[..INSTANCES]);
        self.changes = 0;
    }

    /// The time that one change takes.
    fn change(&mut self) -> Duration {
        let first = |replaced: usize| {
            let way = replaced % (2 * REPLACED);
            way.min(2 * REPLACED - way)
        };
        let (before, after) = (first(self.changes / 2), first(self.changes / 2 + 1));
        let members = match self.changes % 2 {
            0 => &self.members[before.max(after)..before.min(after) + INSTANCES],
            _ => &self.members[after..after + INSTANCES],
        };
        self.changes += 1;
        let begun = Instant::now();
        self.picker = self.factory.build(members);
        begun.elapsed()
    }

    /// The time that a leaver takes, and that of a joiner.
    fn replace(&mut self) -> (Duration, Duration) {
        if self.changes % 2 == 1 {
            self.change();
        }
        (self.change(), self.change())
    }
}
