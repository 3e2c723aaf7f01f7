//! What readers have begun: each counts for itself, so that a pick needs no atomic addition to be counted.
//!
//! A reader keeps a tab for the selection that it picks from, and is the only one who writes it. The balancer knows all open tabs; a closed
//! one is entered into the instances' own counters. So what was begun is what the instances have plus what stands on the tabs, and how many
//! succeeded is what was begun less what is in flight and what ended otherwise.

use std::sync::{Arc, PoisonError};

use super::Member;
use super::selection::Selection;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// What one reader has begun since its selection was built.
pub(super) struct Tab {
    selection: Arc<Selection>,
    /// By the place of a member in the selection's first tier. Written by the reader alone, hence without additions; released, as whoever
    /// sees a request begun has to see it in flight.
    begun: Box<[AtomicU64]>,
}

impl Tab {
    fn new(selection: Arc<Selection>) -> Self {
        let begun = selection.first.members.iter().map(|_| AtomicU64::new(0)).collect();
        Self { selection, begun }
    }

    /// Enters what stands here into the counters of the members, and wipes it off.
    fn settle(&self) {
        for (member, begun) in self.selection.first.members.iter().zip(&self.begun) {
            match begun.load(Ordering::Relaxed) {
                0 => {}
                count => {
                    member.cell().flights().add_begun(count);
                    begun.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    #[inline]
    pub(super) fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }

    /// Counts a pick of the member at this place of the first tier. Only the reader that opened the tab may call it.
    #[inline]
    pub(super) fn count(&self, place: usize) {
        if let Some(begun) = self.begun.get(place) {
            begun.store(begun.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }
}

/// All tabs of one balancer that are open.
#[derive(Default)]
pub(super) struct Tabs(Mutex<Vec<Arc<Tab>>>);

impl Tabs {
    /// Opens a tab for a selection.
    pub(super) fn open(&self, selection: Arc<Selection>) -> Arc<Tab> {
        let tab = Arc::new(Tab::new(selection));
        self.lock().push(tab.clone());
        tab
    }

    /// Enters what stands on a tab into the counters of its members, for nobody writes it any more.
    pub(super) fn close(&self, tab: &Arc<Tab>) {
        let mut open = self.lock();
        if let Some(at) = open.iter().position(|other| Arc::ptr_eq(other, tab)) {
            open.swap_remove(at);
            tab.settle();
        }
    }

    /// Closes a tab and opens one for a newer selection, on the same piece of memory where that is large enough: a set that changes all the
    /// time costs its readers no allocation.
    pub(super) fn renew(&self, tab: &mut Arc<Tab>, selection: Arc<Selection>) {
        let mut open = self.lock();
        if let Some(at) = open.iter().position(|other| Arc::ptr_eq(other, tab)) {
            open.swap_remove(at);
            tab.settle();
        }
        match Arc::get_mut(tab) {
            Some(own) if own.begun.len() >= selection.first.members.len() => own.selection = selection,
            _ => *tab = Arc::new(Tab::new(selection)),
        }
        open.push(tab.clone());
    }

    /// What was begun at a member, whoever began it: `counted` answers what its own counters say, while no tab is closed.
    pub(super) fn begun(&self, member: &Member, counted: impl FnOnce() -> u64) -> u64 {
        let open = self.lock();
        let on_tabs = open.iter().map(|tab| {
            let members = &tab.selection.first.members;
            let at = members.binary_search_by(|other| other.instance().id().cmp(member.instance().id())).ok();
            // Who left and came back under the same id is another one.
            let at = at.filter(|at| Arc::ptr_eq(members[*at].cell(), member.cell()));
            at.and_then(|at| tab.begun.get(at)).map_or(0, |begun| begun.load(Ordering::Acquire))
        });
        on_tabs.sum::<u64>() + counted()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Tab>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Tab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tab").field("selection", &self.selection).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Tabs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tabs").field("open", &self.lock().len()).finish()
    }
}
