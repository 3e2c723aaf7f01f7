//! What an operator does by hand: everything through the documented script, past the code under test.

use std::collections::HashSet;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue};

/// A connection of our own.
#[derive(Clone)]
pub(crate) struct Operator(MultiplexedConnection);

impl Operator {
    pub(crate) async fn connect(address: &str) -> Self {
        let client = Client::open(format!("redis://{address}")).expect("a raw client");
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        Self(client.get_multiplexed_async_connection_with_config(&config).await.expect("a raw connection"))
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&[u8]]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query_async(&mut self.0.clone()).await.expect("an answer")
    }

    async fn script(&self, stem: &str, verb: &str, rest: &[&[u8]]) {
        let head: [&[u8]; 7] = [
            b"EVAL",
            discovery_redis::REGISTRY_LUA.as_bytes(),
            b"1",
            stem.as_bytes(),
            verb.as_bytes(),
            b"-",
            b"PUBLISH",
        ];
        self.ask::<redis::Value>(&[&head, rest].concat()).await;
    }

    /// Writes records without a lease.
    pub(crate) async fn put(&self, records: &[(String, Vec<u8>)]) {
        for some in records.chunks(200) {
            join_all(some.iter().map(async |(key, value)| {
                let (stem, id) = place(key);
                self.script(&stem, "write", &[id.as_bytes(), value]).await;
            }))
            .await;
        }
        for service in records
            .iter()
            .filter_map(|(key, _)| key.rsplit_once('/'))
            .map(|(service, _)| service)
            .collect::<HashSet<_>>()
        {
            if let Some((prefix, name)) = service.rsplit_once('/').filter(|(prefix, _)| !prefix.is_empty()) {
                let list = format!("{{{prefix}}}:names");
                self.script(&list, "enlist", &[name.as_bytes(), b"0", b"1000"]).await;
            }
        }
    }

    pub(crate) async fn delete(&self, key: &str) {
        let (stem, id) = place(key);
        self.script(&stem, "remove", &[id.as_bytes()]).await;
    }

    pub(crate) async fn get(&self, key: &str) -> Option<Vec<u8>> {
        let (stem, id) = place(key);
        self.ask(&[b"GET", format!("{stem}/{id}").as_bytes()]).await
    }

    /// How many changes all services have seen.
    pub(crate) async fn changes(&self) -> u64 {
        let mut changes = 0;
        for key in self.keys("{*}:version").await {
            changes += self.ask::<Option<u64>>(&[b"GET", key.as_bytes()]).await.unwrap_or(0);
        }
        changes
    }

    /// The leased records: stem, id and lease of each.
    pub(crate) async fn leased(&self) -> Vec<(String, String, String)> {
        let mut leased = Vec::new();
        for key in self.keys("{*}:owners").await {
            let stem = key.trim_end_matches(":owners").to_owned();
            let owners: Vec<(String, String)> = self.ask(&[b"HGETALL", key.as_bytes()]).await;
            leased.extend(owners.into_iter().map(|(id, lease)| (stem.clone(), id, lease)));
        }
        leased
    }

    /// Removes every leased record.
    pub(crate) async fn expire(&self) {
        for (stem, id, _) in self.leased().await {
            self.script(&stem, "remove", &[id.as_bytes()]).await;
        }
    }

    async fn keys(&self, pattern: &str) -> Vec<String> {
        self.ask(&[b"KEYS", pattern.as_bytes()]).await
    }
}

/// The stem and the id of a key in the common layout.
fn place(key: &str) -> (String, &str) {
    let (service, id) = key.rsplit_once('/').expect("a key with segments");
    (format!("{{{service}}}"), id)
}
