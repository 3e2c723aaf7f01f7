//! Who acts: handles, what they registered, and what they watch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::client::SimulatedStore;
use super::witness::Seat;
use super::world::{Shared, World};
use crate::model::Key;
use crate::store::Scope;
use crate::{Backend, Engine, Instance, RegisterOptions, Registration, ServiceNames, Watch};

/// How long whoever deregisters or closes waits.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Cast {
    /// The handle of each client, while it is open.
    pub(super) backends: Vec<Option<Arc<dyn Backend>>>,
    pub(super) wishes: Vec<Wish>,
    pub(super) seats: BTreeMap<(usize, Arc<str>), Seat>,
    pub(super) names: BTreeMap<usize, Watch<ServiceNames>>,
    /// The weight of the newest wish; each has one of its own.
    last: u32,
}

/// How far a registration is.
#[derive(Clone)]
pub(super) enum Stage {
    /// `register` has not answered yet.
    Asked,
    Held(Arc<Registration>),
    /// `register` failed then.
    Refused(Duration),
    /// It was given up then, in whatever way.
    Left(Duration),
}

/// One registration that a user wished for.
pub(super) struct Wish {
    pub(super) client: usize,
    pub(super) key: Key,
    pub(super) path: Arc<str>,
    /// What it was first.
    pub(super) first: u32,
    /// What it was last set to.
    pub(super) newest: u32,
    /// The newest that was sent to the store.
    pub(super) written: u32,
    pub(super) stage: Stage,
    /// Whose record the store last refused to overwrite.
    pub(super) refused_for: Option<usize>,
    /// Since when the store lacks the record although the registration says that it has it.
    pub(super) lost_since: Option<Duration>,
}

impl Cast {
    /// The newest wish of a client for a key.
    pub(super) fn newest_mut(&mut self, client: usize, key: &Key) -> Option<&mut Wish> {
        self.wishes.iter_mut().rev().find(|wish| wish.client == client && wish.key == *key)
    }
}

fn instance(key: &Key, weight: u32) -> Option<Instance> {
    let builder = Instance::builder(&*key.service).id(&*key.id).endpoint("grpc://10.0.0.1:9000");
    builder.weight(weight).started_at(std::time::UNIX_EPOCH).build().ok()
}

/// A record as an operator would write it by hand.
pub(super) fn record(key: &Key, weight: u32) -> Arc<[u8]> {
    instance(key, weight).map_or_else(|| (*b"junk").into(), |instance| crate::encode(&instance).into())
}

impl World {
    pub(super) fn open_handle(&mut self, shared: &Shared) {
        let client = self.join();
        let store = SimulatedStore::new(shared.clone(), client, self.space.clone());
        match Engine::start(Arc::new(store), self.policy.clone()) {
            Ok(engine) => self.cast.backends.push(Some(engine)),
            Err(error) => {
                self.violated(format!("the engine does not start: {error}"));
                self.cast.backends.push(None);
            }
        }
    }

    pub(super) fn next_wish(&mut self) -> u32 {
        self.cast.last += 1;
        self.cast.last
    }

    pub(super) fn register(&mut self, shared: &Shared, client: usize, key: Key) {
        let Some(backend) = self.cast.backends.get(client).cloned().flatten() else { return };
        let newest = self.next_wish();
        let Some(instance) = instance(&key, newest) else { return };
        // Whoever registers an id again on the same handle gives the former registration up (R6), but does not drop it.
        let (path, number) = (self.space.key(&key).into(), self.cast.wishes.len());
        let (stage, written, refused_for, lost_since) = (Stage::Asked, 0, None, None);
        self.cast.wishes.push(Wish {
            client,
            key,
            path,
            first: newest,
            newest,
            written,
            stage,
            refused_for,
            lost_since,
        });
        let shared = shared.clone();
        tokio::spawn(async move {
            let answer = backend.register(instance, RegisterOptions::default()).await;
            let mut world = shared.lock();
            let now = world.now();
            let heard = answer.as_ref().map_or_else(|error| format!("{:?}", error.kind()), |_| "done".to_owned());
            world.say(format!("wish {number} is registered: {heard}"));
            world.check_registered(number, answer.is_ok());
            if let Some(wish) = world.cast.wishes.get_mut(number) {
                wish.stage = match (answer, &wish.stage) {
                    (Ok(registration), Stage::Asked) => Stage::Held(Arc::new(registration)),
                    (Err(_), Stage::Asked) => Stage::Refused(now),
                    (_, ended) => ended.clone(), // Its process was killed or its handle closed.
                };
            }
        });
    }

    /// The registration that a client holds of a key.
    fn held(&self, client: usize, key: &Key) -> Option<(usize, Arc<Registration>)> {
        let mut wishes = self.cast.wishes.iter().enumerate().rev();
        let (number, wish) = wishes.find(|(_, wish)| wish.client == client && wish.key == *key)?;
        match &wish.stage {
            Stage::Held(registration) => Some((number, registration.clone())),
            _ => None,
        }
    }

    pub(super) fn update(&mut self, shared: &Shared, client: usize, key: &Key) {
        let Some((number, registration)) = self.held(client, key) else { return };
        let newest = self.next_wish();
        self.cast.wishes[number].newest = newest;
        let shared = shared.clone();
        tokio::spawn(async move {
            let answer = registration.update(|instance| instance.weight(newest)).await;
            let heard = answer.map_or_else(|error| format!("{:?}", error.kind()), |()| "done".to_owned());
            shared.lock().say(format!("wish {number} is updated to {newest}: {heard}"));
        });
    }

    pub(super) fn deregister(&mut self, shared: &Shared, client: usize, key: &Key) {
        let Some((number, registration)) = self.held(client, key) else { return };
        let now = self.now();
        self.cast.wishes[number].stage = Stage::Left(now);
        let shared = shared.clone();
        tokio::spawn(async move {
            let answer = registration.deregister_within(PATIENCE).await;
            let mut world = shared.lock();
            let heard = answer.as_ref().map_or_else(|error| format!("{:?}", error.kind()), |()| "done".to_owned());
            world.say(format!("wish {number} is deregistered: {heard}"));
            if answer.is_ok() {
                world.check_deregistered(number);
            }
        });
    }

    /// Drops a registration without waiting for anything (R10).
    pub(super) fn abandon(&mut self, client: usize, key: &Key) {
        // Who still waits for an update holds it too.
        let free = |registration: &Arc<Registration>| Arc::strong_count(registration) == 2;
        if let Some((number, _)) = self.held(client, key).filter(|(_, registration)| free(registration)) {
            self.cast.wishes[number].stage = Stage::Left(self.now());
        }
    }

    pub(super) fn watch(&mut self, client: usize, service: &str) {
        if let Some(Some(backend)) = self.cast.backends.get(client) {
            let watch = backend.watch(service);
            self.cast.seats.entry((client, service.into())).or_insert_with(|| Seat::new(watch));
        }
    }

    pub(super) fn watch_names(&mut self, client: usize) {
        if let Some(Some(backend)) = self.cast.backends.get(client) {
            self.cast.names.insert(client, backend.watch_services());
        }
    }

    pub(super) fn unwatch(&mut self, client: usize, service: &str) {
        self.cast.seats.remove(&(client, service.into()));
    }

    /// Gives up everything that a client wished for.
    fn leave(&mut self, client: usize) {
        let now = self.now();
        for wish in self.cast.wishes.iter_mut().filter(|wish| wish.client == client) {
            if matches!(wish.stage, Stage::Asked | Stage::Held(_)) {
                wish.stage = Stage::Left(now);
            }
        }
        self.cast.names.remove(&client);
    }

    pub(super) fn close(&mut self, shared: &Shared, client: usize) {
        let Some(backend) = self.cast.backends.get_mut(client).and_then(Option::take) else { return };
        // Registrations outlive the handle; what closing does to them is what is looked at.
        self.leave(client);
        let shared = shared.clone();
        tokio::spawn(async move {
            let answer = backend.close(PATIENCE).await;
            let mut world = shared.lock();
            world.say(format!("client {client} is closed: {:?}", answer.as_ref().err().map(crate::Error::kind)));
            if answer.is_ok() {
                world.check_closed(client);
            }
        });
    }

    /// A process that is killed sends nothing any more.
    pub(super) fn kill(&mut self, client: usize) {
        if let Some(this) = self.clients.get_mut(client) {
            this.killed = true;
            self.leave(client);
            self.cast.seats.retain(|(of, _), _| *of != client);
            self.cast.backends[client] = None;
        }
    }

    /// Looks at what a watch shows since it was looked at last.
    pub(super) fn look(&mut self, client: usize, scope: &Scope) {
        let Scope::Service(service) = scope else { return };
        let prefix = self.space.service_prefix(service);
        let now = self.now();
        let Some(seat) = self.cast.seats.get_mut(&(client, service.clone())) else { return };
        let mut wrong = seat.check_brake(&prefix, &self.truth, now);
        if let Some((shown, more)) = seat.look(&prefix, &self.truth) {
            self.say(format!("client {client} sees {service}: {shown}"));
            wrong.extend(more);
        }
        for what in wrong {
            self.violated(format!("client {client}, {service}: {what}"));
        }
    }
}
