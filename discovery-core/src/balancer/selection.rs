//! Who may be picked: built anew whenever the set or somebody's reachability changes.

use std::sync::Arc;

use super::Member;
use super::flight::Cell;
use super::health::{Bell, Health};
use crate::clock::Clock;
use crate::picker::{Picker, PickerFactory};
use crate::snapshot::{Freshness, Snapshot};
use crate::{Error, ErrorKind, State};

/// Failures in a row that somebody has to look at. Envoy's `consecutive_5xx`.
const ALARM: u32 = 5;

/// One membership and its picker, behind one atomic pointer.
pub(super) struct Selection {
    /// Counts selections.
    pub(super) number: u64,
    pub(super) service: Arc<str>,
    pub(super) freshness: Freshness,
    /// How many changes of health it heeds.
    pub(super) health: u64,
    /// Everybody in the set, sorted by id.
    pub(super) known: Box<[Member]>,
    /// Those that the picker sees, sorted by id.
    pub(super) members: Box<[Member]>,
    pub(super) picker: Arc<dyn Picker>,
    /// Whether the picker goes by time.
    pub(super) is_timed: bool,
}

/// What selections are built with.
pub(super) struct Builder<F> {
    pub(super) factory: F,
    pub(super) bell: Bell,
    pub(super) clock: Clock,
}

impl<F: PickerFactory> Builder<F> {
    pub(super) fn build(&self, snapshot: &Snapshot, before: Option<&Selection>) -> Selection {
        // Read first: what rings while this is built is heeded by the next one.
        let health = self.bell.rings();
        let known = self.carry_over(snapshot, before.map_or(&[], |selection| &selection.known));
        let members = eligible(&known);
        // A change of freshness, or of somebody who is not picked, is no reason to begin anew.
        let picker: Arc<dyn Picker> = match before {
            Some(before) if same(&before.members, &members) => before.picker.clone(),
            _ => self.factory.build(&members).into(),
        };
        let (service, freshness) = (snapshot.service().into(), snapshot.freshness().clone());
        let number = before.map_or(0, |before| before.number + 1);
        let is_timed = picker.is_timed();
        Selection { number, service, freshness, health, known, members, picker, is_timed }
    }

    /// Gives every instance its cell from before; both lists are sorted by id, so one walk suffices.
    fn carry_over(&self, snapshot: &Snapshot, before: &[Member]) -> Box<[Member]> {
        let mut before = before.iter().peekable();
        let carried = snapshot.instances().iter().map(|instance| {
            while before.next_if(|member| member.instance().id() < instance.id()).is_some() {}
            match before.next_if(|member| member.instance().id() == instance.id()) {
                Some(member) if Arc::ptr_eq(member.instance(), instance) => member.clone(),
                Some(member) => {
                    member.cell().renew(instance.clone());
                    Member::new(instance.clone(), instance.weight(), member.cell().clone())
                }
                None => {
                    let health = Health::new(ALARM, self.bell.clone());
                    let cell = Cell::new(instance.clone(), health, self.clock.clone());
                    Member::new(instance.clone(), instance.weight(), Arc::new(cell))
                }
            }
        });
        carried.collect()
    }
}

impl std::fmt::Debug for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (known, members) = (self.known.len(), self.members.len());
        f.debug_struct("Selection")
            .field("service", &self.service)
            .field("known", &known)
            .field("members", &members)
            .finish()
    }
}

impl Selection {
    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        let at = self.known.binary_search_by(|member| member.instance().id().cmp(id)).ok()?;
        self.known.get(at)
    }

    /// Why nobody can be picked: which service, how many are known, how stale, and the store's last error.
    pub(super) fn nobody(&self) -> Error {
        let known = self.known.len();
        let why = if self.freshness.is_loading() {
            "no set was read from the registry yet".to_owned()
        } else if known == 0 {
            "no instance is registered".to_owned()
        } else if self.members.is_empty() {
            format!("{known} known, all with weight 0")
        } else {
            format!("{known} known, the picker chose none of the {} it may pick", self.members.len())
        };
        Error::new(ErrorKind::NoInstance, "pick", format!("an instance of {:?}", self.service), why + &self.staleness())
    }

    /// The refusal of a set that is older than the caller allows.
    pub(super) fn too_stale(&self) -> Error {
        let why = format!("{} known, but the set is older than allowed", self.known.len());
        Error::new(ErrorKind::NoInstance, "pick", format!("an instance of {:?}", self.service), why + &self.staleness())
    }

    fn staleness(&self) -> String {
        let Some(since) = self.freshness.since() else {
            return String::new();
        };
        let cause = self.freshness.cause().map_or_else(String::new, |cause| format!(" because: {cause}"));
        format!("; the set is not live since {:?}{cause}", since.elapsed())
    }
}

fn same(before: &[Member], now: &[Member]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(a, b)| a.is_same(b))
}

/// Those with weight (P2), narrowed to the best that there are: serving and reachable, draining and reachable, serving, draining (P4).
///
/// A draining instance still serves what it gets until its grace is over, so it is better than one that cannot be reached.
fn eligible(known: &[Member]) -> Box<[Member]> {
    let rank = |member: &Member| match (member.is_available(), member.instance().state()) {
        (true, State::Serving) => 0,
        (true, _) => 1,
        (false, State::Serving) => 2,
        (false, _) => 3,
    };
    // Reachability may change meanwhile, so each member is asked once.
    let weighty: Vec<_> = known.iter().filter(|m| m.instance().weight() > 0).map(|m| (rank(m), m)).collect();
    let best = weighty.iter().map(|(rank, _)| *rank).min();
    weighty.into_iter().filter(|(rank, _)| Some(*rank) == best).map(|(_, member)| member.clone()).collect()
}
