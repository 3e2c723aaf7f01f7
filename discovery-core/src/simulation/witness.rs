//! What is checked while a schedule runs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::cast::Stage;
use super::truth::{Said, Truth};
use super::world::World;
use crate::model::{Key, decode};
use crate::store::Scope;
use crate::{RegistrationState, Snapshot, Watch};

/// More requests of one client in a second of its time are a busy loop.
const MANY: u32 = 300;

#[derive(Default)]
pub(super) struct Witness {
    pub(super) violations: Vec<String>,
    /// Subscriptions that are open, by client and scope.
    open: HashSet<(usize, Scope)>,
    /// When an answer to a client's audit or renewal last failed to come or was a lie.
    misled: BTreeMap<usize, Duration>,
    sent: BTreeMap<usize, (u64, u32)>,
}

impl Witness {
    pub(super) fn violated(&mut self, what: String) {
        if self.violations.len() < 20 {
            self.violations.push(what);
        }
    }
}

/// One watch, and what it showed.
pub(super) struct Seat {
    pub(super) watch: Watch,
    last: Option<Arc<Snapshot>>,
    before: Option<Arc<Snapshot>>,
    /// For each key what was seen last, and where in the key's course that is.
    seen: BTreeMap<String, (Said, usize)>,
    /// The keys that the brake has to hold, each with the state that lacked it.
    held: BTreeMap<String, usize>,
    /// Until when at least, and at most.
    held_until: Duration,
    held_limit: Duration,
    /// Whether no full set came since the subscription began, or there is none: nobody who is held is let go then.
    reading: bool,
}

impl Seat {
    pub(super) fn new(watch: Watch) -> Self {
        let (seen, held, never) = (BTreeMap::new(), BTreeMap::new(), Duration::ZERO);
        Self { watch, last: None, before: None, seen, held, held_until: never, held_limit: never, reading: true }
    }

    /// Compares what is shown with the course of each key: it has to be one of the states since the one that was shown before. Nothing
    /// is shown that the store did not say, and nothing old after something newer (W4, W10); of what cannot be read the last good value stays
    /// (W6).
    pub(super) fn look(&mut self, prefix: &str, truth: &Truth) -> Option<(String, Vec<String>)> {
        let view = self.watch.latest()?;
        if self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &view)) {
            return None;
        }
        let shown: BTreeMap<_, _> =
            view.instances().iter().map(|i| (format!("{prefix}{}", i.id()), Said::Wish(i.weight()))).collect();
        let mut wrong = Vec::new();
        let keys: BTreeSet<_> = shown.keys().chain(self.seen.keys()).cloned().collect();
        for key in keys {
            let now = shown.get(&key).copied().unwrap_or(Said::Nothing);
            let (said, place) = self.seen.get(&key).copied().unwrap_or((Said::Nothing, 0));
            if now == said {
                continue;
            }
            let course = truth.said.get(&*key).map_or(&[][..], Vec::as_slice);
            match course.iter().skip(place).position(|(_, said)| *said == now) {
                Some(ahead) => _ = self.seen.insert(key, (now, place + ahead)),
                None => {
                    wrong.push(format!(
                        "W4/W6/W10: {key} was shown as {said:?} and is now {now:?}, which the store never said since"
                    ));
                    self.seen.insert(key, (now, place));
                }
            }
        }
        let set: Vec<_> = view.instances().iter().map(|i| format!("{}={}", i.id(), i.weight())).collect();
        let freshness = match (view.freshness().is_live(), view.held()) {
            (true, _) => "live".to_owned(),
            (false, 0) => "stale".to_owned(),
            (false, held) => format!("{held} held"),
        };
        self.last = Some(view);
        Some((format!("[{}] {freshness}", set.join(" ")), wrong))
    }

    /// A full set lacks these keys, and the brake has to hold them for a grace, or for what is left of three (W9).
    fn hold(&mut self, keys: impl Iterator<Item = String>, number: usize, now: Duration, grace: Duration) {
        if self.held_limit.is_zero() || self.before.as_ref().is_none_or(|before| before.held() == 0) {
            (self.held_limit, self.held) = (now + 3 * grace, BTreeMap::new());
        }
        self.held_until = (now + grace).min(self.held_limit);
        self.held.extend(keys.map(|key| (key, number)));
    }

    /// Whether somebody was let go before the grace was over, although the store never said anything of it since.
    pub(super) fn check_brake(&mut self, prefix: &str, truth: &Truth, now: Duration) -> Vec<String> {
        if now >= self.held_until && !self.reading {
            self.held.clear();
        }
        let Some(view) = self.watch.latest() else { return Vec::new() };
        let untold = |key: &str, number: usize| {
            truth.said.get(key).is_none_or(|course| course.iter().all(|(at, _)| *at <= number))
        };
        self.held.retain(|key, number| untold(key, *number));
        let gone = |key: &&String| key.strip_prefix(prefix).is_none_or(|id| view.get(id).is_none());
        let gone: Vec<_> = self.held.keys().filter(gone).cloned().collect();
        gone.iter().for_each(|key| _ = self.held.remove(key));
        gone.iter().map(|key| format!("W9: {key} was let go before its grace was over")).collect()
    }

    /// The store itself served an earlier state as a full set, which nobody can tell from a store that was restored.
    fn goes_back(&mut self, truth: &Truth, number: usize) {
        for (key, (_, place)) in &mut self.seen {
            let course = truth.said.get(&**key).map_or(&[][..], Vec::as_slice);
            *place = (*place).min(course.partition_point(|(at, _)| *at <= number).saturating_sub(1));
        }
    }
}

impl World {
    pub(super) fn opened(&mut self, client: usize, scope: &Scope) {
        if !self.witness.open.insert((client, scope.clone())) {
            self.violated(format!("W7: client {client} follows {scope:?} twice"));
        }
        self.reads(client, scope, true);
    }

    pub(super) fn closed(&mut self, client: usize, scope: &Scope) {
        self.witness.open.remove(&(client, scope.clone()));
        self.reads(client, scope, true);
    }

    fn reads(&mut self, client: usize, scope: &Scope, reading: bool) {
        self.look(client, scope);
        let Scope::Service(service) = scope else { return };
        if let Some(seat) = self.cast.seats.get_mut(&(client, service.clone())) {
            seat.reading = reading;
        }
    }

    pub(super) fn count(&mut self, client: usize) {
        let second = self.now().as_secs();
        let sent = self.witness.sent.entry(client).or_insert((second, 0));
        *sent = if sent.0 == second { (second, sent.1 + 1) } else { (second, 1) };
        if sent.1 == MANY {
            self.violated(format!("L1/L2: client {client} sent {MANY} requests within a second"));
        }
    }

    /// Hears how an audit or a renewal ended.
    pub(super) fn heard(&mut self, client: usize, honest: bool) {
        if !honest {
            let now = self.now();
            self.witness.misled.insert(client, now);
        }
    }

    pub(super) fn check_write(&mut self, client: usize, key: &Key, value: &[u8]) {
        if self.clients[client].killed {
            return; // Nothing that it sends leaves it.
        }
        let now = self.now();
        let weight = decode(key, value).map_or(0, |decoded| decoded.instance.weight());
        let wrong = match self.cast.newest_mut(client, key) {
            None => Some("R6: nobody registered it".to_owned()),
            Some(wish) => {
                let before = wish.written;
                wish.written = weight.max(before);
                let ended = match &wish.stage {
                    Stage::Asked => false,
                    Stage::Held(registration) => {
                        matches!(registration.state(), RegistrationState::Superseded | RegistrationState::Closed)
                    }
                    // What was sent at the same moment was sent before it was heard.
                    Stage::Refused(at) | Stage::Left(at) => *at < now,
                };
                if ended {
                    Some("R2/R6: it has ended".to_owned())
                } else if weight < before {
                    Some(format!("R7: {weight} after {before}"))
                } else {
                    None
                }
            }
        };
        if let Some(why) = wrong {
            self.violated(format!("client {client} writes {key} = {weight}: {why}"));
        }
    }

    pub(super) fn check_remove(&mut self, client: usize, key: &Key) {
        let Some(wish) = self.cast.newest_mut(client, key) else { return };
        let Stage::Held(registration) = &wish.stage else { return };
        let state = registration.state();
        if !matches!(state, RegistrationState::Superseded | RegistrationState::Closed) {
            self.violated(format!("R7: client {client} removes {key}, which is registered"));
        }
    }

    pub(super) fn check_revoke(&mut self, client: usize) {
        if self.living(client).next().is_some() {
            self.violated(format!("R8: client {client} revokes the lease that its registrations hang on"));
        }
    }

    /// The registrations of a client that nobody gave up and that were not told that they are superseded.
    pub(super) fn living(&self, client: usize) -> impl Iterator<Item = &super::cast::Wish> {
        self.cast.wishes.iter().filter(move |wish| wish.client == client && wish.is_living())
    }

    /// A write that comes so late that the same client registered the id anew meanwhile sets the record back, which nobody can know.
    pub(super) fn check_late(&mut self, client: usize, key: &Key, path: &Arc<str>) {
        let said = self.truth.state.records.get(path).map(|record| record.said);
        let first = self.cast.newest_mut(client, key).map(|wish| wish.first);
        if matches!((said, first), (Some(Said::Wish(said)), Some(first)) if said < first) {
            self.truth.bring_back(path);
        }
    }

    /// Notes on whose lease the record is for which the store refuses a guarded write.
    pub(super) fn refused(&mut self, client: usize, key: &Key, holder: Option<u64>) {
        let by = holder.and_then(|lease| self.truth.client_of(lease));
        if let Some(wish) = self.cast.newest_mut(client, key) {
            wish.refused_for = by;
        }
    }

    pub(super) fn check_registered(&mut self, number: usize, done: bool) {
        let Some(wish) = self.cast.wishes.get(number) else { return };
        let newest = self.cast.wishes.iter().rev().find(|other| other.path == wish.path);
        if done && wish.written == 0 && newest.is_some_and(|newest| std::ptr::eq(newest, wish)) {
            self.violated(format!("R1: wish {number} is registered, and nothing was written"));
        }
    }

    /// The record is gone, unless somebody newer wrote it or a write is late.
    pub(super) fn check_deregistered(&mut self, number: usize) {
        let Some(wish) = self.cast.wishes.get(number) else { return };
        let Some(record) = self.truth.state.records.get(&wish.path) else { return };
        let ours = record.lease.and_then(|lease| self.truth.client_of(lease)) == Some(wish.client);
        let again = self.cast.wishes[number + 1..].iter().any(|o| o.client == wish.client && o.path == wish.path);
        if ours && !again && !self.truth.is_brought_back(&wish.path) && !self.is_writing(wish.client, &wish.path) {
            let what = format!("R2: wish {number} is deregistered, and {} stands", wish.path);
            self.violated(what);
        }
    }

    pub(super) fn check_closed(&mut self, client: usize) {
        let ours = |lease: Option<u64>| lease.and_then(|lease| self.truth.client_of(lease)) == Some(client);
        let left = self
            .truth
            .state
            .records
            .iter()
            .find(|(path, r)| ours(r.lease) && !self.truth.is_brought_back(path) && !self.is_writing(client, path));
        if let Some((path, _)) = left {
            let what = format!("R10: client {client} is closed, and {path} stands");
            self.violated(what);
        }
    }

    /// Notes what is shown before a full set is taken, and whether it is an old one.
    pub(super) fn before_full(&mut self, client: usize, scope: &Scope, number: usize) {
        self.look(client, scope);
        let Scope::Service(service) = scope else { return };
        if let Some(seat) = self.cast.seats.get_mut(&(client, service.clone())) {
            seat.before = seat.watch.latest();
            seat.goes_back(&self.truth, number);
        }
    }

    /// Looks at a set that was taken, and whether the brake held what vanished across a gap (W9).
    pub(super) fn after_full(&mut self, client: usize, scope: &Scope, number: usize) {
        self.reads(client, scope, false);
        if let (Scope::Names, Some(shown)) = (scope, self.cast.names.get(&client).and_then(Watch::latest)) {
            let read = self.truth.range(number, &self.space.root()).1;
            let names: BTreeSet<_> = read.iter().filter_map(|r| Some(self.space.parse(&r.key)?.service)).collect();
            if *shown.names() != names {
                self.violated(format!(
                    "W2: client {client} read {names:?} at state {number} and lists {:?}",
                    shown.names()
                ));
            }
        }
        let (Scope::Service(service), Some(hold)) = (scope, self.policy.hold()) else { return };
        let now = self.now();
        let prefix = self.space.service_prefix(service);
        let Some(seat) = self.cast.seats.get_mut(&(client, service.clone())) else { return };
        let (Some(before), Some(after)) = (seat.before.clone(), seat.watch.latest()) else { return };
        let read: BTreeSet<_> = self.truth.range(number, &prefix).1.into_iter().map(|record| record.key).collect();
        let vanished = before.instances().iter().filter(|i| !read.contains(&format!("{prefix}{}", i.id()))).count();
        let sharp = hold.is_sharp(before.len(), vanished);
        seat.held.retain(|key, _| !read.contains(key));
        let said = |key: &str| {
            let course = self.truth.said.get(key).map_or(&[][..], Vec::as_slice);
            course.iter().rev().find(|(at, _)| *at <= number).map_or(Said::Nothing, |(_, said)| *said)
        };
        let shows = |key: &str| {
            let instance = key.strip_prefix(&*prefix).and_then(|id| after.get(id));
            instance.map_or(Said::Nothing, |instance| Said::Wish(instance.weight()))
        };
        let differs = |key: &&String| said(key) != Said::Junk && said(key) != shows(key);
        let beyond = after.instances().iter().filter(|i| !read.contains(&format!("{prefix}{}", i.id()))).count();
        let torn = read.iter().find(differs).cloned().or((beyond > after.held()).then(|| format!("{beyond} more")));
        // Each full set here is the first of its subscription, and so comes across a gap, which begins the grace of those who are held anew.
        if sharp || after.held() > 0 {
            let keys = before.instances().iter().map(|i| format!("{prefix}{}", i.id()));
            seat.hold(keys.filter(|key| sharp && !read.contains(key)), number, now, hold.grace);
        }
        if let Some(what) = torn {
            self.violated(format!("W2: client {client} read {service} at state {number} and shows {what} otherwise"));
        }
        if sharp && before.instances().iter().any(|i| after.get(i.id()).is_none()) {
            self.violated(format!("W9: client {client} let {vanished} of {} go across a gap", before.len()));
        }
    }

    /// Looks at what watches show, also where the store said nothing, and at what is claimed: by registrations that they hold (R11), and by
    /// sets that they are live (W12).
    pub(super) fn look_around(&mut self) {
        let seats: Vec<_> = self.cast.seats.keys().cloned().collect();
        seats.into_iter().for_each(|(client, service)| self.look(client, &Scope::Service(service)));
        let now = self.now();
        let policy = self.policy.clone();
        let noticed = policy.probe + 2 * policy.timeout;
        let repaired = 2 * policy.ttl + noticed + Duration::from_secs(1);
        let mut wrong = Vec::new();
        for number in 0..self.clients.len() {
            let client = &mut self.clients[number];
            let since = if client.is_heard() { None } else { client.unreachable_since.or(Some(now)) };
            client.unreachable_since = since;
            let open = self.cast.backends.get(number).is_some_and(Option::is_some);
            let silent = open && since.is_some_and(|since| now.saturating_sub(since) > noticed);
            let seats = self.cast.seats.iter().filter(|((of, _), _)| *of == number);
            if silent && seats.filter(|(_, seat)| seat.watch.freshness().is_live()).count() > 0 {
                wrong.push(format!("W12: client {number} cannot be reached since {since:?}, and its sets are live"));
            }
        }
        for (number, wish) in self.cast.wishes.iter_mut().enumerate() {
            let Stage::Held(registration) = &wish.stage else { continue };
            let record = self.truth.state.records.get(&wish.path);
            let owner = record.and_then(|record| record.lease).and_then(|lease| self.truth.client_of(lease));
            if owner == Some(wish.client) || !registration.state().is_registered() {
                wish.lost_since = None;
                continue;
            }
            let misled = self.witness.misled.get(&wish.client).copied().unwrap_or_default();
            let since = *wish.lost_since.get_or_insert(now);
            if now.saturating_sub(since.max(misled)) > repaired {
                wrong.push(format!(
                    "R11: wish {number} says that it is registered; {} is not its own since {since:?}",
                    wish.path
                ));
                wish.lost_since = None;
            }
        }
        wrong.into_iter().for_each(|what| self.violated(what));
    }
}
