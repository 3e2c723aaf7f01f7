//! The same minute of requests, with a second copy of those that take long.
//!
//! The copy goes to another server than the first one, whichever answers first counts, and the other is cancelled at that moment.

use std::collections::BTreeMap;
use std::time::Duration;

use discovery_core::attempts::{Hedge, HedgeOptions};
use discovery_core::{Context, Outcome, Pick, PickerFactory, Reader};

use super::report::Report;
use super::simulation::{Arrivals, Time, balance, took, usual};
use crate::Result;

/// What a caller does who may not send a copy at the moment, as too many were sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It waits for its answer.
    Waits,
    /// It asks again after as long as it has waited before it asked.
    AsksAgain,
}

/// A pick that repeats the first one is given back; after so many there is nobody else.
const TRIES: usize = 32;

/// A request that is not answered yet.
struct Request {
    begun: f64,
    first: (usize, Pick),
    copy: Option<(usize, Pick)>,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// This server answers.
    Answer(usize),
    /// It has waited for so long that a copy may be worth it.
    Late,
}

struct Minute {
    reader: Reader,
    time: Time,
    hedge: Hedge,
    refused: Refused,
    /// How a first copy ends whose answer came second.
    lost: Outcome,
    /// For the copies alone, so that the requests are those of everybody else.
    random: fastrand::Rng,
    /// By number.
    requests: BTreeMap<usize, Request>,
    /// By moment in nanoseconds, and the number of the request.
    events: BTreeMap<(u64, usize), Event>,
    latencies: Vec<f64>,
    copies: usize,
}

/// Lets a minute pass. Returns also how many requests were sent twice.
pub(super) async fn run(
    factory: impl PickerFactory,
    refused: Refused,
    lost: Outcome,
    seed: u64,
) -> Result<(Report, usize)> {
    let (reader, time) = balance(factory).await?;
    let minute = Minute {
        reader,
        time,
        hedge: Hedge::new(HedgeOptions::default()),
        refused,
        lost,
        random: fastrand::Rng::with_seed(!seed),
        requests: BTreeMap::new(),
        events: BTreeMap::new(),
        latencies: Vec::new(),
        copies: 0,
    };
    minute.drive(seed)
}

impl Minute {
    /// Not async, so that it stays on the thread whose random numbers it seeds.
    fn drive(mut self, seed: u64) -> Result<(Report, usize)> {
        fastrand::seed(seed);
        for (number, (now, usual)) in Arrivals::new(seed).enumerate() {
            self.pass(now)?;
            self.time.set(now);
            let (server, pick) = self.pick()?;
            self.schedule(now + took(server, now, usual) / 1e3, number, Event::Answer(server));
            if let Some(delay) = self.hedge.delay() {
                self.schedule(now + delay.as_secs_f64(), number, Event::Late);
            }
            self.requests.insert(number, Request { begun: now, first: (server, pick), copy: None });
        }
        self.pass(f64::INFINITY)?;
        Ok((Report::of(self.latencies), self.copies))
    }

    /// Lets happen what is due.
    fn pass(&mut self, now: f64) -> Result<()> {
        while let Some(entry) = self.events.first_entry() {
            let at = entry.key().0 as f64 / 1e9;
            if at > now {
                break;
            }
            let ((_, number), event) = entry.remove_entry();
            self.time.set(at);
            match event {
                Event::Answer(server) => self.answer(number, server, at),
                Event::Late => self.late(number, at)?,
            }
        }
        Ok(())
    }

    fn answer(&mut self, number: usize, by: usize, at: f64) {
        // The other copy was cancelled with the first answer, so nobody waits for it.
        let Some(request) = self.requests.remove(&number) else { return };
        let took = at - request.begun;
        self.hedge.record(Duration::from_secs_f64(took));
        self.latencies.push(took * 1e3);
        let (first, pick) = request.first;
        pick.finish(if first == by { Outcome::Success } else { self.lost });
        if let Some((copy, pick)) = request.copy {
            pick.finish(if copy == by { Outcome::Success } else { Outcome::Cancelled });
        }
    }

    fn late(&mut self, number: usize, at: f64) -> Result<()> {
        let Some(first) = self.requests.get(&number).map(|request| request.first.0) else { return Ok(()) };
        if !self.hedge.permits() {
            if let (Refused::AsksAgain, Some(delay)) = (self.refused, self.hedge.delay()) {
                self.schedule(at + delay.as_secs_f64(), number, Event::Late);
            }
            return Ok(());
        }
        for _ in 0..TRIES {
            let (server, pick) = self.pick()?;
            if server == first {
                pick.discard();
                continue;
            }
            self.copies += 1;
            let usual = usual(&mut self.random);
            self.schedule(at + took(server, at, usual) / 1e3, number, Event::Answer(server));
            if let Some(request) = self.requests.get_mut(&number) {
                request.copy = Some((server, pick));
            }
            break;
        }
        Ok(())
    }

    fn pick(&mut self) -> Result<(usize, Pick)> {
        let pick = self.reader.pick(&Context::default())?;
        Ok((pick.instance().id().parse()?, pick))
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a minute of nanoseconds")]
    fn schedule(&mut self, at: f64, number: usize, event: Event) {
        let mut nanos = (at * 1e9) as u64;
        // Two things that would happen to one request at the same moment happen one after the other.
        while self.events.contains_key(&(nanos, number)) {
            nanos += 1;
        }
        self.events.insert((nanos, number), event);
    }
}
