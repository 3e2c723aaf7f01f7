//! What readers have begun: each counts for itself, so that a pick needs no atomic addition to be counted.
//!
//! A reader keeps a tab for the selection that it picks from, and is the only one who writes it. Where it cannot go on to a newer selection
//! at once, it picks as those do who have no tab. The balancer knows all open tabs; a closed
//! one is entered into the instances' own counters. So what was begun is what the instances have plus what stands on the tabs, and how many
//! succeeded is what was begun less what is in flight and what ended otherwise.

use std::sync::{Arc, PoisonError, TryLockError};

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
    /// Where the balancer has it.
    number: usize,
}

impl Tab {
    fn new(selection: Arc<Selection>, places: usize, number: usize) -> Self {
        Self { selection, begun: (0..places).map(|_| AtomicU64::new(0)).collect(), number }
    }

    fn has_room_for(&self, selection: &Selection) -> bool {
        self.begun.len() >= selection.first.members.len()
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

/// All tabs of one balancer that are open. Readers take the lock when they come and go; within a pick they only try to.
#[derive(Default)]
pub(super) struct Tabs(Mutex<Register>);

#[derive(Default)]
struct Register {
    /// By number; those that are free have none.
    open: Vec<Open>,
    free: Vec<usize>,
}

#[derive(Default)]
struct Open {
    tab: Option<Arc<Tab>>,
    /// A larger one for when the set has grown, or one that was outgrown and is not to be freed within a pick.
    spare: Option<Arc<Tab>>,
}

impl Tabs {
    /// Opens a tab for the selection that is loaded meanwhile, while nobody makes room for another one.
    pub(super) fn open(&self, load: impl FnOnce() -> Arc<Selection>) -> Arc<Tab> {
        let mut register = self.lock();
        let selection = load();
        let number = register.free.pop().unwrap_or(register.open.len());
        let places = selection.first.members.len();
        let tab = Arc::new(Tab::new(selection, places, number));
        if number == register.open.len() {
            register.open.push(Open::default());
        }
        register.open[number].tab = Some(tab.clone());
        tab
    }

    /// Enters what stands on a tab into the counters of its members, for nobody writes it any more.
    pub(super) fn close(&self, tab: &Arc<Tab>) {
        let mut register = self.lock();
        register.open[tab.number] = Open::default();
        register.free.push(tab.number);
        tab.settle();
    }

    /// Goes on to a newer selection, without waiting, allocating or freeing. Returns whether it did: not while somebody else is at the register,
    /// nor before the balancer has made room for a larger set.
    pub(super) fn renew(&self, tab: &mut Arc<Tab>, selection: Arc<Selection>) -> bool {
        let Some(mut register) = self.try_lock() else {
            return false;
        };
        let open = &mut register.open[tab.number];
        if tab.has_room_for(&selection) {
            // The register's share, so that the reader's is the only one.
            open.tab = None;
        } else if let Some(larger) = open.spare.take_if(|spare| spare.has_room_for(&selection)) {
            tab.settle();
            open.tab = None;
            open.spare = Some(std::mem::replace(tab, larger));
        } else {
            return false;
        }
        tab.settle();
        if let Some(own) = Arc::get_mut(tab) {
            own.selection = selection;
        }
        open.tab = Some(tab.clone());
        true
    }

    /// Makes room for a selection that readers are about to see, and frees what they left behind. For the balancer's task.
    pub(super) fn provide(&self, selection: &Arc<Selection>) {
        for (number, open) in self.lock().open.iter_mut().enumerate() {
            let Some(tab) = &open.tab else { continue };
            if tab.has_room_for(selection) {
                open.spare = None;
            } else if !open.spare.as_ref().is_some_and(|spare| spare.has_room_for(selection)) {
                // Twice as many, so that a set which grows one by one is seldom too large.
                let places = selection.first.members.len() * 2;
                open.spare = Some(Arc::new(Tab::new(selection.clone(), places, number)));
            }
        }
    }

    /// What was begun at a member, whoever began it: `counted` answers what its own counters say, while no tab is closed.
    pub(super) fn begun(&self, member: &Member, counted: impl FnOnce() -> u64) -> u64 {
        let register = self.lock();
        let on_tabs = register.open.iter().filter_map(|open| open.tab.as_ref()).map(|tab| {
            let members = &tab.selection.first.members;
            let at = members.binary_search_by(|other| other.instance().id().cmp(member.instance().id())).ok();
            // Who left and came back under the same id is another one.
            let at = at.filter(|at| Arc::ptr_eq(members[*at].cell(), member.cell()));
            at.and_then(|at| tab.begun.get(at)).map_or(0, |begun| begun.load(Ordering::Acquire))
        });
        on_tabs.sum::<u64>() + counted()
    }

    fn lock(&self) -> MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Register>> {
        match self.0.try_lock() {
            Ok(register) => Some(register),
            Err(TryLockError::Poisoned(register)) => Some(register.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl std::fmt::Debug for Tab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tab").field("selection", &self.selection).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Tabs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tabs").field("open", &self.lock().open.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::builder::Builder;
    use crate::balancer::health::Bell;
    use crate::picker::Random;
    use crate::{BalancerOptions, Freshness, Instance, InstanceSet, Snapshot};

    fn selections(tabs: &Arc<Tabs>, sizes: &[usize]) -> Vec<Arc<Selection>> {
        let mut builder = Builder::new(Random, Bell::new(), tabs.clone(), BalancerOptions::default());
        let mut built: Vec<Arc<Selection>> = Vec::new();
        for size in sizes {
            let mut instances = InstanceSet::default();
            for id in 0..*size {
                let instance = Instance::builder("s").id(format!("{id:03}")).endpoint("grpc://h:1").build().unwrap();
                instances.insert(Arc::new(instance));
            }
            let snapshot = Snapshot { freshness: Freshness::Live, instances, ..Snapshot::loading("s".into()) };
            let before = built.last().cloned();
            built.push(builder.build(&snapshot, before.as_deref()).into());
        }
        built
    }

    #[test]
    fn p01_a_reader_goes_on_only_where_there_is_room_and_nobody_at_the_register() {
        let tabs = Arc::<Tabs>::default();
        let [small, large, larger] = selections(&tabs, &[2, 50, 90]).try_into().unwrap();
        let mut tab = tabs.open(|| small.clone());
        let first = small.first.members[0].clone();
        tab.count(0);
        assert!(!tabs.renew(&mut tab, large.clone()), "nobody made room");
        tabs.provide(&large);
        let register = tabs.lock();
        assert!(!tabs.renew(&mut tab, large.clone()), "somebody is there");
        drop(register);
        assert!(tabs.renew(&mut tab, large.clone()));
        tab.count(0);
        assert_eq!(tabs.begun(&first, || first.cell().flights().begun()), 2);
        // What was given has room for twice as many.
        assert!(tabs.renew(&mut tab, larger));
        tab.count(0);
        tabs.close(&tab);
        assert_eq!(first.cell().flights().begun(), 3);
        assert_eq!(tabs.open(|| small).number, tab.number, "its place is free again");
    }
}
