//! The in-memory store as the engine drives it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use async_trait::async_trait;

use super::{MAX_RECORD, MemoryLink, MemoryStore, TTL_BOUNDS};
use crate::model::{Key, KeySpace};
use crate::store::{Audit, Capabilities, Digest, Lease, Owner, RawChange, Renewal, Scope, Sink, Store, Written};
use crate::{Error, ErrorKind, Result};

/// One handle's view of the store, through its link.
pub(super) struct Handle {
    store: MemoryStore,
    link: MemoryLink,
    space: KeySpace,
    capabilities: Capabilities,
}

impl Handle {
    pub(super) fn new(store: MemoryStore, link: MemoryLink, space: KeySpace) -> Self {
        let capabilities = Capabilities {
            backend: "memory",
            registers: true,
            min_ttl: TTL_BOUNDS.0,
            max_ttl: TTL_BOUNDS.1,
            max_record: MAX_RECORD,
            lease_survives_reconnect: true,
            lease_survives_restart: true,
        };
        Self { store, link, space, capabilities }
    }

    fn prefix(&self, scope: &Scope) -> String {
        match scope {
            Scope::Service(service) => self.space.service_prefix(service),
            Scope::Names => self.space.root(),
        }
    }

    /// Passes a request through the link in both directions.
    async fn ask<T>(&self, request: impl FnOnce(&mut super::State) -> T + Send) -> Result<T> {
        let connection = self.link.there().await?;
        let answer = request(&mut self.store.lock());
        self.link.back(connection).await.map(|()| answer)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.link.hang_up();
    }
}

fn denied(prefix: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, "read", prefix, "reading is denied")
}

fn size(change: &RawChange) -> usize {
    match change {
        RawChange::Put(record) => record.key.len() + record.value.len(),
        RawChange::Delete(key, _) => key.len(),
    }
}

#[async_trait]
impl Store for Handle {
    fn address(&self) -> String {
        format!("memory://{}", self.space.prefix())
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn parse_key<'a>(&self, key: &'a str) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        self.space.split(key)
    }

    async fn connect(&self) -> Result<()> {
        self.link.open();
        self.ask(|_| ()).await
    }

    async fn ping(&self) -> Result<()> {
        self.ask(|_| ()).await
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease> {
        let id = self.ask(|state| state.grant(ttl)).await?;
        Ok(Lease { id, ttl })
    }

    async fn renew(&self, lease: &Lease, _held: &[Key]) -> Result<Renewal> {
        Ok(self.ask(|state| state.renew(lease.id)).await?.map_or(Renewal::Lost, Renewal::Held))
    }

    async fn audit(&self, lease: &Lease, held: &[Key]) -> Result<Audit> {
        let keys = self.ask(|state| state.keys_of(lease.id)).await?;
        let found: Vec<_> = keys.iter().filter_map(|key| self.space.parse(key)).collect();
        Ok(Audit {
            missing: held.iter().filter(|key| !found.contains(key)).cloned().collect(),
            orphans: found.into_iter().filter(|key| !held.contains(key)).collect(),
        })
    }

    async fn revoke(&self, lease: &Lease) -> Result<()> {
        self.ask(|state| state.revoke(lease.id)).await
    }

    async fn write(&self, lease: &Lease, key: &Key, value: &[u8], previous: Option<&Owner>) -> Result<Written> {
        let path = self.space.key(key);
        self.ask(|state| {
            if !state.is_alive(lease.id) {
                return Written::LeaseLost;
            }
            let holder = state.get(&path).and_then(|record| record.lease);
            match (previous, holder) {
                (None, Some(former)) if former != lease.id => state.supersede(&path, former),
                (Some(owner), _) => {
                    let ours = |id| id == lease.id || id == owner.lease.id;
                    if holder.is_some_and(|id| !ours(id)) || state.is_superseded(&path, owner.lease.id) {
                        return Written::Superseded(holder);
                    }
                }
                (None, _) => {}
            }
            state.reclaim(&path, lease.id);
            state.put(&path, value, Some(lease.id));
            Written::Done(Owner { lease: lease.clone(), mark: "".into() })
        })
        .await
    }

    async fn remove(&self, key: &Key, owner: &Owner) -> Result<()> {
        let path = self.space.key(key);
        self.ask(|state| {
            if state.get(&path).is_some_and(|record| record.lease.is_none_or(|holder| holder == owner.lease.id)) {
                state.delete(&path);
            }
        })
        .await
    }

    async fn follow(&self, scope: &Scope, sink: &dyn Sink) -> Error {
        let prefix = self.prefix(scope);
        let opened = self.ask(|state| (state.revision(), state.arrivals(), state.range(&prefix), state.subscribe()));
        let connection = self.link.there().await;
        let (connection, (revision, mut arrival, records, mut wake)) = match (connection, opened.await) {
            (Ok(connection), Ok(opened)) => (connection, opened),
            (Err(error), _) | (_, Err(error)) => return error,
        };
        let Some(records) = records else { return denied(&prefix) };
        self.link.count_received(records.iter().map(|record| record.key.len() + record.value.len()).sum());
        sink.part(records);
        sink.full(revision, Vec::new());
        loop {
            let (expiry, news) = {
                let state = self.store.lock();
                (state.next_expiry(), state.since(arrival).map(|news| (news, state.arrivals())))
            };
            let Some((news, now)) = news else {
                return Error::new(ErrorKind::Gap, "follow", prefix, "the notifications were compacted");
            };
            arrival = now;
            if let Err(error) = self.link.back(connection).await {
                return error;
            }
            let about = |change: &RawChange| match change {
                RawChange::Put(record) => record.key.starts_with(&prefix),
                RawChange::Delete(key, _) => key.starts_with(&prefix),
            };
            let news: Vec<_> = news.into_iter().filter(|(_, change)| about(change)).collect();
            self.link.count_received(news.iter().map(|(_, change)| size(change)).sum());
            if let Some((revision, _)) = news.last() {
                sink.changes(*revision, news.into_iter().map(|(_, change)| change).collect());
            }
            tokio::select! {
                error = self.link.broken() => return error,
                changed = wake.wait_for(|last| *last > arrival) => {
                    if changed.is_err() {
                        return Error::closed("follow", prefix);
                    }
                }
                () = async {
                    match expiry {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }

    /// One process needs no more than itself.
    fn source_address(&self) -> Option<IpAddr> {
        Some(Ipv4Addr::LOCALHOST.into())
    }

    async fn digest(&self, scope: &Scope, since: u64) -> Result<Digest> {
        let prefix = self.prefix(scope);
        let (revision, records) = self.ask(|state| (state.revision(), state.range(&prefix))).await?;
        let records = records.ok_or_else(|| denied(&prefix))?;
        let changed = records.iter().filter(|record| record.revision > since);
        Ok(Digest {
            revision,
            count: records.len(),
            changed: changed.map(|record| (record.key.clone(), record.revision)).collect(),
        })
    }
}
