//! What the sides of a watch show, made into one view.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::choice::{Counted, Decision, Standing};
use crate::snapshot::{Freshness, ServiceNames, Snapshot, View};
use crate::{Change, Instance, InstanceSet};

/// Makes one view of several.
pub(super) trait Blend: Send + 'static {
    type View: View;

    fn is_empty(view: &Self::View) -> bool;

    /// Whether an earlier process left it.
    fn is_from_disk(view: &Self::View) -> bool;

    /// Takes what each side shows, `None` for one that is closed, and answers whether that changes what is shown.
    fn take(&mut self, views: &[Option<Arc<Self::View>>], decision: &Decision) -> bool;

    fn view(&self, freshness: &Freshness) -> Arc<Self::View>;
}

/// One side's set, as it was taken last.
#[derive(Default)]
struct Side {
    set: InstanceSet,
    standing: Option<Standing>,
    /// Who left another, live side while this one was away: their records here as they were. A side that is away cannot vouch for them,
    /// nor can one that just came back and may still wait for the end of their leases.
    departed: HashMap<Arc<str>, Arc<Instance>>,
    /// Whose records were written here since it came back: they are newer than what a side that is away knows.
    written: HashSet<Arc<str>>,
}

impl Side {
    fn is_live(&self) -> bool {
        self.standing.is_some_and(Standing::is_live)
    }

    fn listed(&self, id: &str, counts: Counted) -> Option<&Arc<Instance>> {
        let gone = counts == Counted::All && self.departed.contains_key(id);
        self.set.get(id).filter(|_| !gone)
    }
}

/// The instances of one service, each id once.
pub(super) struct Instances {
    service: Arc<str>,
    sides: Vec<Side>,
    counted: Counted,
    /// The sides in the order in which their records count.
    order: Vec<usize>,
    set: InstanceSet,
    /// Rises with each change of the set.
    revision: u64,
    unreadable: usize,
    held: usize,
    from_disk: bool,
}

impl Instances {
    pub(super) fn new(service: Arc<str>, sides: usize) -> Self {
        let sides = (0..sides).map(|_| Side::default()).collect();
        let set = InstanceSet::default();
        Self {
            service,
            sides,
            counted: Counted::Nobody,
            order: Vec::new(),
            set,
            revision: 0,
            unreadable: 0,
            held: 0,
            from_disk: false,
        }
    }

    /// Takes the sides' sets, and returns the ids of which something changed, and those that left a live side.
    fn read(&mut self, views: &[Option<Arc<Snapshot>>], standings: &[Standing]) -> (HashSet<Arc<str>>, Vec<Arc<str>>) {
        let (mut touched, mut left) = (HashSet::new(), Vec::new());
        for ((side, view), standing) in self.sides.iter_mut().zip(views).zip(standings) {
            let set =
                view.as_ref().filter(|_| standing.has_set()).map(|view| view.instances.clone()).unwrap_or_default();
            if *standing != Standing::Back {
                side.written.clear();
            }
            // The first set after an outage may be from before it.
            let follows = *standing == Standing::Back && side.is_live();
            for change in set.changes_since(&side.set) {
                let id = match change {
                    Change::Added(now) | Change::Modified(_, now) => {
                        let id = now.key().id;
                        side.written.extend(follows.then(|| id.clone()));
                        id
                    }
                    Change::Removed(was) => {
                        let id = was.key().id;
                        left.extend(standing.is_live().then(|| id.clone()));
                        id
                    }
                };
                // It was registered anew here, or is gone from here.
                side.departed.remove(&id);
                touched.insert(id);
            }
            side.set = set;
        }
        (touched, left)
    }

    /// Decides for whom sides vouch no longer, or again.
    fn depart(&mut self, left: Vec<Arc<str>>, touched: &mut HashSet<Arc<str>>) {
        for side in &mut self.sides {
            match side.standing {
                Some(Standing::Steady) => touched.extend(side.departed.drain().map(|(id, _)| id)),
                Some(Standing::Stale) => {
                    let gone = left.iter().filter_map(|id| Some((id.clone(), side.set.get(id)?.clone())));
                    side.departed.extend(gone);
                }
                _ => {}
            }
        }
        // Whom a live side lists again is registered, wherever else it is.
        for id in touched.iter() {
            let lists = |side: &Side| side.is_live() && side.listed(id, Counted::All).is_some();
            if self.sides.iter().any(lists) {
                self.sides.iter_mut().for_each(|side| _ = side.departed.remove(id));
            }
        }
    }

    /// What the counted sides say of an id: the first of them, unless that is away and another one has heard from the instance since.
    fn said(&self, id: &str) -> Option<&Arc<Instance>> {
        let counted = self.order.iter().filter(|at| self.counted.includes(**at)).map(|at| &self.sides[*at]);
        let mut said = counted.filter_map(|side| Some((side, side.listed(id, self.counted)?)));
        let (first, record) = said.next()?;
        let newer = said.find(|(side, _)| !first.is_live() && side.written.contains(id));
        Some(newer.map_or(record, |(_, newer)| newer))
    }

    /// Shows what is said of an id, and answers whether that changes the set.
    fn show(&mut self, id: &str) -> bool {
        match self.said(id) {
            None => self.set.remove(id).is_some(),
            Some(now) if self.set.get(id) == Some(now) => false,
            Some(now) => {
                let now = now.clone();
                self.set.insert(now);
                true
            }
        }
    }

    fn everybody(&self) -> HashSet<Arc<str>> {
        let sets = self.sides.iter().map(|side| &side.set).chain([&self.set]);
        sets.flat_map(InstanceSet::iter).map(|instance| instance.key().id).collect()
    }
}

impl Blend for Instances {
    type View = Snapshot;

    fn is_empty(view: &Snapshot) -> bool {
        view.is_empty()
    }

    fn is_from_disk(view: &Snapshot) -> bool {
        view.is_from_disk()
    }

    fn take(&mut self, views: &[Option<Arc<Snapshot>>], decision: &Decision) -> bool {
        let Decision { counted, standings, order, .. } = decision;
        let (mut touched, left) = self.read(views, standings);
        let (before, counted) = (std::mem::replace(&mut self.counted, *counted), *counted);
        let mut anew = before != counted || self.order != *order;
        self.order.clone_from(order);
        for (side, standing) in self.sides.iter_mut().zip(standings) {
            anew |= side.standing.replace(*standing) != Some(*standing);
        }
        self.depart(left, &mut touched);
        if matches!(counted, Counted::Nobody | Counted::Kept) {
            return false;
        }
        if anew {
            touched = self.everybody();
        }
        let shown = touched.iter().filter(|id| self.show(id)).count() > 0;
        self.revision += u64::from(shown);
        let counted: Vec<_> = counted_views(views, counted).collect();
        // The sides have mostly the same instances, so that sums would count them twice.
        let unreadable = counted.iter().map(|view| view.unreadable).max().unwrap_or(0);
        let held = counted.iter().map(|view| view.held).max().unwrap_or(0);
        let from_disk = counted.iter().any(|view| view.from_disk);
        let counts = (unreadable, held, from_disk);
        let recounted = counts != (self.unreadable, self.held, self.from_disk);
        (self.unreadable, self.held, self.from_disk) = counts;
        shown || recounted
    }

    fn view(&self, freshness: &Freshness) -> Arc<Snapshot> {
        Arc::new(Snapshot {
            service: self.service.clone(),
            revision: self.revision,
            freshness: freshness.clone(),
            instances: self.set.clone(),
            unreadable: self.unreadable,
            held: self.held,
            from_disk: self.from_disk,
        })
    }
}

fn counted_views<V>(views: &[Option<Arc<V>>], counted: Counted) -> impl Iterator<Item = &V> {
    views.iter().enumerate().filter(move |(at, _)| counted.includes(*at)).filter_map(|(_, view)| view.as_deref())
}

/// The names of services, those of all counted sides.
#[derive(Default)]
pub(super) struct Names(Arc<BTreeSet<Arc<str>>>);

impl Blend for Names {
    type View = ServiceNames;

    fn is_empty(view: &ServiceNames) -> bool {
        view.names.is_empty()
    }

    /// Names are never of one side because it is preferred.
    fn is_from_disk(_: &ServiceNames) -> bool {
        false
    }

    fn take(&mut self, views: &[Option<Arc<ServiceNames>>], decision: &Decision) -> bool {
        let counted = decision.counted;
        if matches!(counted, Counted::Nobody | Counted::Kept) {
            return false;
        }
        let names: BTreeSet<_> = counted_views(views, counted).flat_map(|view| view.names.iter().cloned()).collect();
        let changed = names != *self.0;
        if changed {
            self.0 = Arc::new(names);
        }
        changed
    }

    fn view(&self, freshness: &Freshness) -> Arc<ServiceNames> {
        Arc::new(ServiceNames { freshness: freshness.clone(), names: self.0.clone() })
    }
}
