//! Plays a schedule.

use std::sync::Arc;
use std::time::Duration;

use super::cast::record;
use super::lies::{Lies, Wire};
use super::schedule::{Schedule, Step};
use super::trace::{Keep, Trace};
use super::world::{Shared, World};
use crate::model::{Key, KeySpace};
use crate::{Error, ErrorKind, Result};

/// How often claims are looked at while a schedule runs.
const LOOK: Duration = Duration::from_millis(500);

/// What became of a schedule.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What did not go as the contracts say, each with its number.
    pub divergences: Vec<String>,
    /// The hash of the trace, the same whenever the seed is.
    pub hash: u64,
    /// The trace, if it was asked for.
    pub trace: Vec<String>,
    /// How many events there were.
    pub events: u64,
}

/// Plays a schedule on a runtime of its own, on paused time. It must not be called inside of another runtime.
///
/// # Errors
/// `Internal` if no runtime can be made.
pub fn run(schedule: &Schedule, keep: Keep) -> Result<Report> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Internal, "start", "a runtime", "it cannot be made").with_source(error)
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().map_err(failed)?;
    let before = fastrand::get_seed();
    fastrand::seed(schedule.seed);
    let report = runtime.block_on(play(schedule, keep));
    drop(runtime);
    fastrand::seed(before);
    report
}

async fn play(schedule: &Schedule, keep: Keep) -> Result<Report> {
    let space = KeySpace::new("")?;
    let shared = Shared::new(schedule.seed, schedule.policy.clone(), space, schedule.calm, keep);
    let end = schedule.calm + Duration::from_millis(1) + schedule.settles_within();
    {
        let mut world = shared.lock();
        for (number, (at, step)) in schedule.steps.iter().enumerate() {
            let (shared, step) = (shared.clone(), step.clone());
            world.plan(*at, format!("! step {number:04}"), move |world| world.play(&shared, &step));
        }
        world.plan(schedule.calm + Duration::from_millis(1), "! calm".to_owned(), World::calm_down);
        let mut at = LOOK;
        while at < end {
            world.plan(at, "~ look".to_owned(), World::look_around);
            at += LOOK;
        }
    }
    shared.run(end).await;
    let mut world = shared.lock();
    world.judge();
    let trace = std::mem::replace(&mut world.trace, Trace::new(Keep::Hash));
    let divergences = std::mem::take(&mut world.witness.violations);
    let events = world.steps;
    // Everybody holds the world, and it holds everybody.
    let cast = std::mem::take(&mut world.cast);
    world.forget();
    drop(world);
    drop(cast);
    let (hash, trace) = trace.finish();
    Ok(Report { seed: schedule.seed, divergences, hash, trace, events })
}

impl World {
    /// From now on nothing goes wrong any more; what went wrong stays so.
    fn calm_down(&mut self) {
        self.say("calm".to_owned());
        self.truth.lateness = Duration::ZERO;
        for client in 0..self.clients.len() {
            self.wire(client, Wire::Works);
            self.clients[client].lies = Lies::NONE;
        }
    }

    fn wire(&mut self, client: usize, wire: Wire) {
        match (self.clients[client].lies.wire, wire) {
            (_, Wire::Refused) => self.cut(client),
            // What was open while nothing answered stays silent.
            (Wire::Silent, Wire::Works) => self.freeze(client),
            _ => {}
        }
        self.clients[client].lies.wire = wire;
    }

    fn freeze(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.frozen = this.connection;
    }

    fn play(&mut self, shared: &Shared, step: &Step) {
        self.say(format!("! {step:?}"));
        if step.client().is_some_and(|client| self.clients.get(client).is_none_or(|this| this.killed)) {
            return;
        }
        let now = self.now();
        match *step {
            Step::Open => self.open_handle(shared),
            Step::Close(client) => self.close(shared, client),
            Step::Kill(client) => self.kill(client),
            Step::Register(client, service, id) => self.register(shared, client, key(service, id)),
            Step::Update(client, service, id) => self.update(shared, client, &key(service, id)),
            Step::Deregister(client, service, id) => self.deregister(shared, client, &key(service, id)),
            Step::Drop(client, service, id) => self.abandon(client, &key(service, id)),
            Step::Watch(client, service) => self.watch(client, service),
            Step::WatchNames(client) => self.watch_names(client),
            Step::Unwatch(client, service) => self.unwatch(client, service),
            Step::Wire(client, wire) => self.wire(client, wire),
            Step::Cut(client) => self.cut(client),
            Step::Freeze(client) => self.freeze(client),
            Step::Flaky(client, chance) => self.clients[client].lies.flaky = chance,
            Step::Lossy(client, lossy) => self.clients[client].lies.lossy = lossy,
            Step::Lag(client, lag) => self.clients[client].lies.lag = lag,
            Step::Deny(client, denial) => self.clients[client].lies.denial = denial,
            Step::ExpireLate(lateness) => self.truth.lateness = lateness,
            Step::ExpireEarly(client) => self.truth.expire_of(now, client),
            Step::Compact => self.compact(),
            Step::Restart => {
                self.cut_all();
                self.truth.restart(now);
            }
            Step::RestartEmpty(ahead) => {
                self.cut_all();
                self.truth.empty(now, ahead);
            }
            Step::Restore(back) => {
                self.cut_all();
                self.truth.restore(now, now.saturating_sub(back), false);
            }
            Step::RestoreBehindProxy(back) => self.truth.restore(now, now.saturating_sub(back), true),
            Step::Put(service, id) => {
                let (key, weight) = (key(service, id), self.next_wish());
                self.truth.put(now, &self.space.key(&key).into(), record(&key, weight), None);
            }
            Step::Spoil(service, id) => {
                let path: Arc<str> = self.space.key(&key(service, id)).into();
                self.truth.put(now, &path, (*b"junk").into(), None);
            }
            Step::Delete(service, id) => self.truth.delete(now, &self.space.key(&key(service, id))),
        }
    }

    fn cut_all(&mut self) {
        (0..self.clients.len()).for_each(|client| self.cut(client));
    }
}

impl Step {
    fn client(&self) -> Option<usize> {
        match *self {
            Step::Close(client)
            | Step::Kill(client)
            | Step::Register(client, ..)
            | Step::Update(client, ..)
            | Step::Deregister(client, ..)
            | Step::Drop(client, ..)
            | Step::Watch(client, ..)
            | Step::WatchNames(client)
            | Step::Unwatch(client, ..)
            | Step::Wire(client, ..)
            | Step::Cut(client)
            | Step::Freeze(client)
            | Step::Flaky(client, ..)
            | Step::Lossy(client, ..)
            | Step::Lag(client, ..)
            | Step::Deny(client, ..)
            | Step::ExpireEarly(client) => Some(client),
            _ => None,
        }
    }
}

fn key(service: &str, id: &str) -> Key {
    Key { service: service.into(), id: id.into() }
}
