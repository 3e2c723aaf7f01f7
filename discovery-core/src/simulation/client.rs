//! One client's view of the simulated store, as the engine drives it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use super::lies::{Verb, chance, percent};
use super::world::{News, Shared, World};
use crate::model::{Key, KeySpace};
use crate::store::{
    Audit, Capabilities, Digest, Lease, Owner, RawChange, RawRecord, Renewal, Scope, Sink, Stamps, Store, Written,
};
use crate::{Error, ErrorKind, Result};

pub(super) struct SimulatedStore {
    world: Shared,
    client: usize,
    space: KeySpace,
    limits: Capabilities,
    stamps: Stamps,
}

/// A set as it was read: its parts, and what changed between them.
struct Opened {
    parts: Vec<Vec<RawRecord>>,
    revision: u64,
    /// The number of the state that it is.
    number: usize,
    /// Whether the second half is read by a request of its own.
    halved: bool,
}

impl SimulatedStore {
    pub(super) fn new(world: Shared, client: usize, space: KeySpace) -> Self {
        let limits = Capabilities {
            backend: "simulated",
            registers: true,
            min_ttl: Duration::from_millis(100),
            max_ttl: Duration::from_secs(86_400),
            max_record: 1024 * 1024,
            lease_survives_reconnect: true,
            lease_survives_restart: true,
        };
        Self { world, client, space, limits, stamps: Stamps::default() }
    }

    async fn ask<T: Send + 'static>(
        &self,
        verb: Verb,
        subject: &str,
        effect: impl FnOnce(&mut World, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        self.world.lock().send(self.client, verb, subject, sender, effect);
        self.world.wake();
        match answer.await {
            Ok(answer) => answer,
            Err(_) => pending().await, // It never comes.
        }
    }

    fn prefix(&self, scope: &Scope) -> String {
        match scope {
            Scope::Service(service) => self.space.service_prefix(service),
            Scope::Names => self.space.root(),
        }
    }

    /// Reads a set, of which the second half may be read later, with what changed in between.
    async fn open(&self, prefix: &str, sender: mpsc::UnboundedSender<News>) -> Result<(Opened, Vec<RawChange>)> {
        let (client, under) = (self.client, prefix.to_owned());
        let mut opened = self
            .ask(Verb::Open, prefix, move |world, name| {
                let halved = percent(&mut chance(world.seed, &format!("{name} halved")), 30);
                Ok(world.open(client, name, under, sender, halved))
            })
            .await?;
        if !opened.halved {
            return Ok((opened, Vec::new()));
        }
        let (under, from) = (prefix.to_owned(), opened.number);
        let (part, since, revision, number) =
            self.ask(Verb::Read, prefix, move |world, _| world.read_rest(&under, from)).await?;
        opened.parts.push(part);
        (opened.revision, opened.number) = (revision, number);
        Ok((opened, since))
    }
}

impl World {
    fn open(
        &mut self,
        client: usize,
        name: &str,
        prefix: String,
        sender: mpsc::UnboundedSender<News>,
        halved: bool,
    ) -> Opened {
        let lag = self.clients[client].lies.lag;
        let number = lag.map_or(self.truth.number(), |lag| self.truth.at(self.now().saturating_sub(lag.by)).0);
        let (revision, mut records) = self.truth.range(number, &prefix);
        let halved = halved && lag.is_none() && records.len() > 1;
        if halved {
            records.truncate(records.len() / 2);
        }
        self.subscribe(client, name, prefix, sender);
        if lag.is_some_and(|lag| lag.catches_up) {
            self.tell_again(client, name, number);
        }
        self.say(format!("client {name} reads {} records of state {number} at {revision}", records.len()));
        Opened { parts: vec![records], revision, number, halved }
    }

    /// The second half of a set whose first half was read at state `from`, and what changed since.
    fn read_rest(&mut self, prefix: &str, from: usize) -> Result<(Vec<RawRecord>, Vec<RawChange>, u64, usize)> {
        let first = self.truth.range(from, prefix).1;
        let last = first.get(first.len() / 2 - 1).map_or(String::new(), |record| record.key.clone());
        let Some(since) = self.truth.changes_after(from, prefix) else {
            return Err(Error::new(ErrorKind::Gap, "read", prefix, "the store was restored meanwhile"));
        };
        let number = self.truth.number();
        let (revision, mut records) = self.truth.range(number, prefix);
        records.retain(|record| record.key > last);
        Ok((records, since, revision, number))
    }
}

#[async_trait]
impl Store for SimulatedStore {
    fn address(&self) -> String {
        format!("simulated:{}", self.client)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.limits
    }

    fn parse_key<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        self.space.split(key)
    }

    async fn connect(&self) -> Result<()> {
        self.world.lock().dial(self.client);
        self.ask(Verb::Connect, "", |_, _| Ok(())).await
    }

    async fn ping(&self) -> Result<()> {
        self.ask(Verb::Ping, "", |_, _| Ok(())).await
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease> {
        let client = self.client;
        self.ask(Verb::Grant, "", move |world, _| Ok(world.truth.grant(world.now(), client, ttl))).await
    }

    async fn renew(&self, lease: &Lease, _held: &[Key]) -> Result<Renewal> {
        let id = lease.id;
        let renew = move |world: &mut World, _: &str| {
            let now = world.now();
            Ok(world.truth.renew(now, id).map_or(Renewal::Lost, Renewal::Held))
        };
        let answer = self.ask(Verb::Renew, "", renew).await;
        self.world.lock().heard(self.client, answer.is_ok());
        answer
    }

    async fn audit(&self, lease: &Lease, held: &[Key]) -> Result<Audit> {
        let (client, id) = (self.client, lease.id);
        let read = move |world: &mut World, _: &str| {
            let lag = world.clients[client].lies.lag.map_or(Duration::ZERO, |lag| lag.by);
            Ok((world.truth.at(world.now().saturating_sub(lag)).1.held_by(id), lag.is_zero()))
        };
        let before = self.stamps.before(held);
        let answer = self.ask(Verb::Audit, "", read).await;
        self.world.lock().heard(self.client, answer.as_ref().is_ok_and(|(_, honest)| *honest));
        let found = answer?.0;
        let found: BTreeMap<_, _> =
            found.iter().filter_map(|(path, revision)| Some((self.space.parse(path)?, *revision))).collect();
        let intact =
            |key: &&Key| found.get(*key).is_some_and(|revision| !self.stamps.is_other(&before, key, *revision));
        Ok(Audit {
            missing: held.iter().filter(|key| !intact(key)).cloned().collect(),
            orphans: found.into_keys().filter(|key| !held.contains(key)).collect(),
        })
    }

    async fn revoke(&self, lease: &Lease) -> Result<()> {
        let id = lease.id;
        self.world.lock().check_revoke(self.client);
        let revoke = move |world: &mut World, _: &str| {
            let now = world.now();
            world.truth.revoke(now, id);
            Ok(())
        };
        self.ask(Verb::Revoke, "", revoke).await
    }

    async fn write(&self, lease: &Lease, key: &Key, value: &[u8], previous: Option<&Owner>) -> Result<Written> {
        let (client, lease, previous) = (self.client, lease.clone(), previous.cloned());
        let (path, value): (Arc<str>, Arc<[u8]>) = (self.space.key(key).into(), value.into());
        self.world.lock().check_write(client, key, &value);
        self.stamps.forget(key);
        let (subject, name, key) = (path.clone(), key.clone(), key.clone());
        let write = move |world: &mut World, _: &str| {
            let now = world.now();
            let written = world.truth.write(now, &lease, &path, value, previous.as_ref());
            if matches!(written, Written::Done(_)) {
                world.check_late(client, &key, &path);
            }
            if let Written::Superseded(holder) = written {
                world.refused(client, &key, holder);
            }
            Ok((written, world.truth.state.revision))
        };
        let (written, revision) = self.ask(Verb::Write, &subject, write).await?;
        if matches!(written, Written::Done(_)) {
            self.stamps.wrote(&name, revision);
        }
        Ok(written)
    }

    async fn remove(&self, key: &Key, owner: &Owner) -> Result<()> {
        let (path, owner) = (self.space.key(key), owner.clone());
        self.world.lock().check_remove(self.client, key);
        self.stamps.forget(key);
        let subject = path.clone();
        let remove = move |world: &mut World, _: &str| {
            let now = world.now();
            world.truth.remove(now, &path, &owner);
            Ok(())
        };
        self.ask(Verb::Remove, &subject, remove).await
    }

    async fn follow(&self, scope: &Scope, sink: &dyn Sink) -> Error {
        let prefix = self.prefix(scope);
        let (sender, mut news) = mpsc::unbounded_channel();
        let _open = Following::begin(&self.world, self.client, scope);
        let (opened, since) = match self.open(&prefix, sender).await {
            Ok(opened) => opened,
            Err(error) => return error,
        };
        self.world.lock().before_full(self.client, scope, opened.number);
        for part in opened.parts {
            sink.part(part);
        }
        sink.full(opened.revision, since);
        self.world.lock().after_full(self.client, scope, opened.number);
        loop {
            match news.recv().await {
                Some(News::Change(revision, change)) => {
                    sink.changes(revision, vec![change]);
                    self.world.lock().look(self.client, scope);
                }
                Some(News::End(error)) => return error,
                None => pending().await,
            }
        }
    }

    async fn digest(&self, scope: &Scope, since: u64) -> Result<Digest> {
        let (client, prefix) = (self.client, self.prefix(scope));
        let subject = prefix.clone();
        let count = move |world: &mut World, _: &str| {
            let lag = world.clients[client].lies.lag.map_or(Duration::ZERO, |lag| lag.by);
            let number = world.truth.at(world.now().saturating_sub(lag)).0;
            let (revision, records) = world.truth.range(number, &prefix);
            let changed = records.iter().filter(|record| record.revision > since);
            let changed = changed.map(|record| (record.key.clone(), record.revision)).collect();
            Ok(Digest { revision, count: records.len(), changed })
        };
        self.ask(Verb::Digest, &subject, count).await
    }
}

/// A subscription that the engine holds, of which there is one for each scope at most (W7).
struct Following(Shared, usize, Scope);

impl Following {
    fn begin(world: &Shared, client: usize, scope: &Scope) -> Self {
        world.lock().opened(client, scope);
        Self(world.clone(), client, scope.clone())
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.lock().closed(self.1, &self.2);
    }
}
