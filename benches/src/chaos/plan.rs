//! What is done and when: drawn from the seed before anything starts, so that a seed always means the same.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

/// Registrars at the beginning, and of them those that nothing is done to in a round but to the store under them: a call has always
/// somebody living to go to.
pub(crate) const REGISTRARS: usize = 6;
const ANCHORS: usize = 3;
const WATCHERS: usize = 3;
const CALLERS: usize = 2;
/// How long a round goes on; what is left to heal then is healed before the sets are compared.
pub(crate) const ROUND: Duration = Duration::from_secs(20);

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Registrar,
    Watcher,
    Caller,
}

/// What a process's way to the store does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Wire {
    Pass,
    Cut,
    Freeze,
    /// Connections that are open fall silent for ever.
    FreezeOpen,
    Swallow,
    Delay(Duration),
}

/// What a server of the store suffers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ill {
    Kill,
    Stop,
    Freeze,
    /// Killed, and started again without its data.
    Empty,
}

/// Something that happens. Processes have numbers, none of which comes twice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Start {
        who: u32,
        role: Role,
        id: String,
        version: u32,
    },
    Kill(u32),
    Stop(u32),
    Continue(u32),
    Update(u32, u32),
    Drain(u32),
    Wire(u32, Wire),
    /// One of the store's servers, or all.
    Ill(Option<usize>, Ill),
    Well,
}

/// What happens until the next comparison.
pub(crate) type Round = Vec<(Duration, Event)>;

/// What a store allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) members: usize,
    /// Whether processes have proxies in front of the store.
    pub(crate) wires: bool,
    /// Whether it may be started without its data.
    pub(crate) emptied: bool,
}

#[derive(Debug, Clone)]
struct Cast {
    role: Role,
    id: String,
    /// Until when something else is done to it.
    busy: Duration,
    anchor: bool,
}

struct Planner {
    rng: Rng,
    limits: Limits,
    cast: BTreeMap<u32, Cast>,
    round: Round,
    next: u32,
    version: u32,
    ill_until: Duration,
}

/// The plan of a seed.
pub(crate) fn rounds(seed: u64, count: u32, limits: Limits) -> Vec<Round> {
    let cast = BTreeMap::new();
    let mut planner = Planner {
        rng: Rng::with_seed(seed),
        limits,
        cast,
        round: Vec::new(),
        next: 0,
        version: 0,
        ill_until: Duration::ZERO,
    };
    let mut rounds = Vec::new();
    for (role, size) in [(Role::Registrar, REGISTRARS), (Role::Watcher, WATCHERS), (Role::Caller, CALLERS)] {
        for _ in 0..size {
            planner.enter(Duration::ZERO, role, None);
        }
    }
    rounds.push(planner.close());
    for _ in 0..count {
        planner.play();
        rounds.push(planner.close());
    }
    rounds
}

impl Planner {
    fn close(&mut self) -> Round {
        let mut round = std::mem::take(&mut self.round);
        round.sort_by_key(|(at, _)| *at);
        self.ill_until = Duration::ZERO;
        self.cast.values_mut().for_each(|cast| cast.busy = Duration::ZERO);
        round
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.round.push((at.min(ROUND), event));
    }

    fn between(&mut self, from: u64, upto: u64) -> Duration {
        Duration::from_millis(self.rng.u64(from..upto))
    }

    /// A new process, under an id of its own or one that is given.
    fn enter(&mut self, at: Duration, role: Role, id: Option<String>) -> u32 {
        let who = self.next;
        self.next += 1;
        self.version += 1;
        let id = id.unwrap_or_else(|| format!("{}{who}", ["r", "w", "c"][role as usize]));
        self.cast.insert(who, Cast { role, id: id.clone(), busy: at, anchor: false });
        self.at(at, Event::Start { who, role, id, version: self.version });
        who
    }

    /// Somebody to whom something can be done; registrars more often, as there are more of them.
    fn victim(&mut self, at: Duration, may: impl Fn(&Cast) -> bool) -> Option<u32> {
        let free: Vec<_> =
            self.cast.iter().filter(|(_, cast)| cast.busy <= at && may(cast)).map(|(who, _)| *who).collect();
        self.rng.choice(free)
    }

    fn occupy(&mut self, who: u32, until: Duration) {
        if let Some(cast) = self.cast.get_mut(&who) {
            cast.busy = until;
        }
    }

    fn play(&mut self) {
        let mut registrars: Vec<_> =
            self.cast.iter().filter(|(_, cast)| cast.role == Role::Registrar).map(|(who, _)| *who).collect();
        self.rng.shuffle(&mut registrars);
        for (who, cast) in &mut self.cast {
            cast.anchor = registrars.iter().take(ANCHORS).any(|anchor| anchor == who);
        }
        let mut at = Duration::ZERO;
        while at < ROUND {
            match self.rng.u32(0..100) {
                0..20 => self.ill(at),
                20..50 if self.limits.wires => self.wire(at),
                50..62 => self.update(at),
                62..78 => self.stop(at),
                78..84 => self.drain(at),
                84..89 => self.replace(at),
                _ => self.kill(at),
            }
            at += self.between(100, 1_500);
        }
    }

    fn ill(&mut self, at: Duration) {
        if at < self.ill_until {
            return;
        }
        let which = match self.limits.members {
            1 => None,
            // Now and then all of them at once.
            members if self.rng.u32(0..4) > 0 => Some(self.rng.usize(0..members)),
            _ => None,
        };
        let ill = match self.rng.u32(0..10) {
            0..3 => Ill::Kill,
            3 => Ill::Stop,
            4..6 if self.limits.emptied => Ill::Empty,
            _ => Ill::Freeze,
        };
        let until = at + self.between(200, 7_000);
        self.at(at, Event::Ill(which, ill));
        self.at(until, Event::Well);
        // The store's own recovery takes a while, in which a second fault would only prolong the first.
        self.ill_until = until + Duration::from_secs(2);
    }

    fn wire(&mut self, at: Duration) {
        let Some(who) = self.victim(at, |cast| !cast.anchor) else { return };
        let wire = match self.rng.u32(0..5) {
            0 => Wire::Cut,
            1 => Wire::Freeze,
            2 => Wire::FreezeOpen,
            3 => Wire::Swallow,
            _ => Wire::Delay(self.between(20, 700)),
        };
        let until = at + self.between(100, 7_000);
        self.at(at, Event::Wire(who, wire));
        self.at(until, Event::Wire(who, Wire::Pass));
        self.occupy(who, until);
    }

    fn update(&mut self, at: Duration) {
        let Some(who) = self.victim(Duration::MAX, |cast| cast.role == Role::Registrar) else { return };
        self.version += 1;
        self.at(at, Event::Update(who, self.version));
    }

    fn stop(&mut self, at: Duration) {
        let Some(who) = self.victim(at, |cast| !cast.anchor) else { return };
        let until = at + self.between(200, 7_000);
        self.at(at, Event::Stop(who));
        self.at(until, Event::Continue(who));
        self.occupy(who, until);
    }

    /// One leaves in order, another one comes.
    fn drain(&mut self, at: Duration) {
        let Some(who) = self.victim(at, |cast| cast.role == Role::Registrar && !cast.anchor) else { return };
        self.cast.remove(&who);
        self.at(at, Event::Drain(who));
        let comes = at + self.between(0, 3_000);
        self.enter(comes, Role::Registrar, None);
    }

    /// Another process takes the id over while the first one lives, which then leaves in order or dies.
    fn replace(&mut self, at: Duration) {
        let Some(who) = self.victim(at, |cast| cast.role == Role::Registrar && !cast.anchor) else { return };
        let Some(former) = self.cast.remove(&who) else { return };
        let leaves = at + self.between(500, 4_000);
        let new = self.enter(at, Role::Registrar, Some(former.id));
        self.occupy(new, leaves);
        let leave = if self.rng.bool() { Event::Drain(who) } else { Event::Kill(who) };
        self.at(leaves, leave);
    }

    /// One dies, another one comes: under the same id while the record of the first still stands, or under a new one.
    fn kill(&mut self, at: Duration) {
        let Some(who) = self.victim(at, |cast| !cast.anchor) else { return };
        let Some(former) = self.cast.remove(&who) else { return };
        self.at(at, Event::Kill(who));
        let comes = at + self.between(0, 5_000);
        let id = self.rng.bool().then_some(former.id).filter(|_| former.role == Role::Registrar);
        self.enter(comes, former.role, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { members: 3, wires: true, emptied: true };

    #[test]
    fn a_seed_means_the_same_and_another_one_something_else() {
        assert_eq!(rounds(7, 4, LIMITS), rounds(7, 4, LIMITS));
        assert_ne!(rounds(7, 4, LIMITS), rounds(8, 4, LIMITS));
    }

    #[test]
    fn everything_that_begins_has_an_end_and_somebody_is_always_spared() {
        for seed in 0..50 {
            for round in &rounds(seed, 4, LIMITS)[1..] {
                let count = |is: fn(&Event) -> bool| round.iter().filter(|(_, event)| is(event)).count();
                assert_eq!(count(|it| matches!(it, Event::Stop(_))), count(|it| matches!(it, Event::Continue(_))));
                assert_eq!(count(|it| matches!(it, Event::Ill(..))), count(|it| *it == Event::Well));
                let left = count(|it| matches!(it, Event::Kill(_) | Event::Drain(_)));
                assert_eq!(left, count(|it| matches!(it, Event::Start { .. })));
            }
        }
    }
}
