//! The simulated world: what happens when, and who hears of it.
//!
//! Everything that happens is an event with a time and a name. Events of one moment happen in the order of their names, and what
//! chance decides about one depends on the seed and its name alone. So the order in which tokio polls the tasks of a moment, which it
//! draws, decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::cast::Cast;
use super::lies::{Answer, Fate, Lies, Verb, Wire, chance};
use super::trace::{Keep, Trace};
use super::truth::{Truth, key_of};
use super::witness::Witness;
use crate::model::KeySpace;
use crate::store::RawChange;
use crate::{Error, ErrorKind, Policy, Result};

type Event = Box<dyn FnOnce(&mut World) + Send>;
type Failing = Box<dyn FnOnce(Option<Error>) + Send>;

/// What a subscription hears.
pub(super) enum News {
    Change(u64, RawChange),
    End(Error),
}

struct Subscription {
    prefix: String,
    sender: mpsc::UnboundedSender<News>,
    connection: u64,
    /// In an honest subscription nothing overtakes.
    last: Duration,
}

/// What the world knows of one client: one handle in one process.
pub(super) struct Client {
    pub(super) lies: Lies,
    /// The number of the connection in use.
    pub(super) connection: u64,
    /// Connections up to this one are open and silent for ever.
    pub(super) frozen: u64,
    /// Connections up to this one are broken, and whoever uses them hears it.
    broken: u64,
    pub(super) killed: bool,
    pub(super) unreachable_since: Option<Duration>,
    counts: BTreeMap<(Verb, String), u64>,
    pending: BTreeMap<String, (u64, Failing)>,
    subscriptions: BTreeMap<String, Subscription>,
}

impl Client {
    fn new() -> Self {
        Self {
            lies: Lies::NONE,
            connection: 0,
            frozen: 0,
            broken: 0,
            killed: false,
            unreachable_since: None,
            counts: BTreeMap::new(),
            pending: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
        }
    }

    pub(super) fn is_heard(&self) -> bool {
        self.hears(self.connection)
    }

    fn hears(&self, connection: u64) -> bool {
        !self.killed && self.lies.wire == Wire::Works && connection > self.frozen && connection > self.broken
    }
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) policy: Policy,
    pub(super) space: KeySpace,
    begun: Instant,
    queue: BTreeMap<(Duration, String), Event>,
    /// When the last fault is over.
    pub(super) calm: Duration,
    pub(super) truth: Truth,
    told: usize,
    pub(super) clients: Vec<Client>,
    pub(super) cast: Cast,
    pub(super) witness: Witness,
    pub(super) trace: Trace,
    pub(super) steps: u64,
}

/// The world as everybody in it holds it.
#[derive(Clone)]
pub(super) struct Shared(Arc<(Mutex<World>, Notify)>);

impl Shared {
    pub(super) fn new(seed: u64, policy: Policy, space: KeySpace, calm: Duration, keep: Keep) -> Self {
        let world = World {
            seed,
            policy,
            begun: Instant::now(),
            queue: BTreeMap::new(),
            calm,
            truth: Truth::new(space.clone()),
            space,
            told: 0,
            clients: Vec::new(),
            cast: Cast::default(),
            witness: Witness::default(),
            trace: Trace::new(keep),
            steps: 0,
        };
        Self(Arc::new((Mutex::new(world), Notify::new())))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that there may be an earlier event than before.
    pub(super) fn wake(&self) {
        self.0.1.notify_one();
    }

    /// Lets time pass until `end`.
    pub(super) async fn run(&self, end: Duration) {
        loop {
            let (begun, next) = {
                let world = self.lock();
                (world.begun, world.next().filter(|at| *at < end).unwrap_or(end))
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(begun + next) => {}
                () = self.0.1.notified() => continue,
            }
            // Whoever was woken by the same moment goes first, in whatever order.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let mut world = self.lock();
            while let Some(event) = world.due() {
                event(&mut world);
                world.tell();
            }
            if world.now() >= end {
                return;
            }
        }
    }
}

impl World {
    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn say(&mut self, line: String) {
        self.trace.say(self.begun.elapsed(), line);
    }

    /// How long faults go on.
    pub(super) fn left(&self) -> Duration {
        self.calm.saturating_sub(self.now())
    }

    pub(super) fn plan(&mut self, at: Duration, name: String, event: impl FnOnce(&mut World) + Send + 'static) {
        self.queue.insert((at, name), Box::new(event));
    }

    fn next(&self) -> Option<Duration> {
        let queued = self.queue.keys().next().map(|(at, _)| *at);
        queued.into_iter().chain(self.truth.next_expiry()).min()
    }

    fn due(&mut self) -> Option<Event> {
        let now = self.now();
        if self.truth.next_expiry().is_some_and(|at| at <= now) {
            self.truth.expire(now);
            self.say("the store ends leases whose time has passed".to_owned());
            self.tell();
        }
        let first = self.queue.first_entry().filter(|entry| entry.key().0 <= now)?;
        self.steps += 1;
        Some(first.remove())
    }

    pub(super) fn join(&mut self) -> usize {
        self.clients.push(Client::new());
        self.clients.len() - 1
    }

    /// Sends a request of a client: `effect` is what it does when it arrives, if it does.
    pub(super) fn send<T: Send + 'static>(
        &mut self,
        client: usize,
        verb: Verb,
        subject: &str,
        sender: oneshot::Sender<Result<T>>,
        effect: impl FnOnce(&mut World, &str) -> Result<T> + Send + 'static,
    ) {
        self.count(client);
        let (now, left, seed) = (self.now(), self.left(), self.seed);
        let this = &mut self.clients[client];
        let count = this.counts.entry((verb, subject.to_owned())).or_insert(0);
        *count += 1;
        let name = format!("{client} {verb:?} {subject} {count}");
        let connection = this.connection;
        let fate = this.lies.fate(verb, &mut chance(seed, &name), left, self.policy.ttl);
        let slot = Arc::new(Mutex::new(Some(sender)));
        if this.killed {
            return; // A dropped sender is an answer that never comes.
        }
        if this.lies.wire == Wire::Refused || connection <= this.broken {
            this.pending.insert(name.clone(), (connection, failing(slot)));
            self.say(format!("client {name}: refused"));
            let key = name.clone();
            return self.plan(now + Duration::from_millis(1), name, move |world| {
                if let Some((_, fail)) = world.clients[client].pending.remove(&key) {
                    fail(Some(unavailable()));
                }
            });
        }
        this.pending.insert(name.clone(), (connection, failing(slot.clone())));
        self.say(format!("client {name}: {fate:?}"));
        let Fate { arrives, answer, back } = fate;
        let key = name.clone();
        let arrive = move |world: &mut World| {
            // What a killed process had sent still arrives, and so does what was sent on a connection that has fallen silent.
            let reached = arrives.is_some() && world.clients[client].lies.wire == Wire::Works;
            let value = reached.then(|| effect(world, &key));
            let value = match (answer, value) {
                (Answer::Never, _) | (Answer::Truly, None) => return,
                (Answer::Error(kind), _) => Err(Error::new(kind, "ask", "the simulated store", "it says so")),
                (Answer::Truly, Some(value)) => value,
            };
            let at = world.now() + back;
            let answered = key.clone();
            world.plan(at, format!("{key} answered"), move |world| {
                let this = &mut world.clients[client];
                if this.hears(connection) {
                    this.unreachable_since = None;
                    this.pending.remove(&answered);
                    if let Some(sender) = slot.lock().unwrap_or_else(PoisonError::into_inner).take() {
                        let _ = sender.send(value);
                    }
                }
            });
        };
        self.plan(now + arrives.unwrap_or(Duration::from_millis(1)), name, arrive);
    }

    /// Whether a write of a key is on its way, so that it may still arrive.
    pub(super) fn is_writing(&self, client: usize, key: &str) -> bool {
        let name = format!("{client} Write {key} ");
        self.queue.keys().any(|(_, planned)| planned.starts_with(&name) && !planned.ends_with("answered"))
    }

    /// Begins a new connection, giving up the one before it.
    pub(super) fn dial(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.connection += 1;
        this.pending.clear();
        this.subscriptions.clear();
    }

    /// Breaks a client's connection, so that whoever uses it hears it.
    pub(super) fn cut(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.broken = this.connection;
        if this.frozen >= this.connection {
            return; // Nothing is heard on it.
        }
        for (_, (_, fail)) in std::mem::take(&mut this.pending) {
            fail(Some(unavailable()));
        }
        for (_, subscription) in std::mem::take(&mut this.subscriptions) {
            let _ = subscription.sender.send(News::End(unavailable()));
        }
    }

    /// Ends every subscription that is heard, as if what it would go on from were gone.
    pub(super) fn compact(&mut self) {
        for this in &mut self.clients {
            let connection = this.connection;
            if !this.hears(connection) {
                continue;
            }
            for (_, subscription) in std::mem::take(&mut this.subscriptions) {
                let error = Error::new(ErrorKind::Gap, "follow", subscription.prefix, "the revision was compacted");
                let _ = subscription.sender.send(News::End(error));
            }
        }
    }

    /// Opens a subscription by the name of the request that asked for it.
    pub(super) fn subscribe(&mut self, client: usize, name: &str, prefix: String, sender: mpsc::UnboundedSender<News>) {
        let connection = self.clients[client].connection;
        let subscription = Subscription { prefix, sender, connection, last: Duration::ZERO };
        self.clients[client].subscriptions.insert(name.to_owned(), subscription);
    }

    /// Tells subscribers what changed, as far as lies let it through.
    fn tell(&mut self) {
        while let Some((number, change)) = self.truth.log.get(self.told).cloned() {
            self.told += 1;
            self.say(format!("the store is at {number}: {}", describe(&change)));
            for client in 0..self.clients.len() {
                let names: Vec<_> = self.clients[client].subscriptions.keys().cloned().collect();
                for name in names {
                    self.notify(client, name, number, &change);
                }
            }
        }
    }

    /// Tells one subscription what changed after a state.
    pub(super) fn tell_again(&mut self, client: usize, name: &str, after: usize) {
        let missed: Vec<_> = self.truth.log.iter().filter(|(number, _)| *number > after).cloned().collect();
        for (number, change) in missed {
            self.notify(client, name.to_owned(), number, &change);
        }
    }

    /// Sends one notification to one subscription.
    fn notify(&mut self, client: usize, name: String, number: usize, change: &RawChange) {
        let (now, left, seed) = (self.now(), self.left(), self.seed);
        let this = &mut self.clients[client];
        let Some(subscription) = this.subscriptions.get_mut(&name) else { return };
        if !key_of(change).starts_with(&subscription.prefix) {
            return;
        }
        let mut rng = chance(seed, &format!("{name} at {number}"));
        let honest = this.lies.lossy == Lies::NONE.lossy;
        for (copy, delay) in this.lies.arrivals(&mut rng, left).into_iter().enumerate() {
            let mut at = now + delay;
            if honest {
                at = at.max(subscription.last);
                subscription.last = at;
            }
            let (change, subscription) = (change.clone(), name.clone());
            let event = move |world: &mut World| {
                let this = &mut world.clients[client];
                let Some(open) = this.subscriptions.get(&subscription) else { return };
                if this.lies.wire == Wire::Works && open.connection > this.frozen {
                    let _ = open.sender.send(News::Change(change.revision(), change));
                }
            };
            self.queue.insert((at, format!("{name} told {number:08} copy {copy}")), Box::new(event));
        }
    }

    /// Drops everything that is planned, which holds the world itself.
    pub(super) fn forget(&mut self) {
        self.queue.clear();
        self.clients.clear();
    }

    pub(super) fn violated(&mut self, what: String) {
        self.say(format!("VIOLATED: {what}"));
        self.witness.violated(what);
    }
}

fn describe(change: &RawChange) -> String {
    match change {
        RawChange::Put(record) => {
            let text = String::from_utf8_lossy(&record.value);
            let weight = text.split("\"weight\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
            format!("put {} = {} at {}", record.key, weight.unwrap_or("junk"), record.revision)
        }
        RawChange::Delete(key, at) => format!("delete {key} at {at}"),
    }
}

type Slot<T> = Arc<Mutex<Option<oneshot::Sender<Result<T>>>>>;

fn failing<T: Send + 'static>(slot: Slot<T>) -> Failing {
    Box::new(move |error| {
        if let (Some(error), Some(sender)) = (error, slot.lock().unwrap_or_else(PoisonError::into_inner).take()) {
            let _ = sender.send(Err(error));
        }
    })
}

fn unavailable() -> Error {
    Error::new(ErrorKind::Unavailable, "reach", "the simulated store", "the connection is broken")
}
