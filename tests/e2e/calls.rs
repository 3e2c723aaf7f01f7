//! Calling greeters through a balanced channel, and counting who answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use discovery_greeter::{GreeterClient, HelloRequest};
use discovery_harness::eventually;
use discovery_kit::Watch;
use discovery_tonic::Channel;

/// TTL, longest backoff, and 3 s.
pub(crate) const SETTLE: Duration = Duration::from_secs(3 + 2 + 3);

pub(crate) async fn connected(channel: &Channel, servers: usize) {
    eventually(SETTLE, "connections", async || {
        let now = [channel.connected(), channel.sharing()];
        if now == [servers; 2] { Ok(()) } else { Err(format!("{now:?} of {servers}")) }
    })
    .await;
}

/// Calls `calls` times and counts who answered; a failed call fails the test.
pub(crate) async fn count(channel: &Channel, calls: u32) -> BTreeMap<String, u32> {
    let mut client = GreeterClient::new(channel.clone());
    let mut counts = BTreeMap::new();
    for _ in 0..calls {
        let request = HelloRequest { name: "you".into(), count: 0 };
        let reply = client.say_hello(request).await.unwrap().into_inner();
        *counts.entry(reply.server).or_insert(0) += 1;
    }
    counts
}

pub(crate) fn shares(expected: &[(&str, u32)]) -> BTreeMap<String, u32> {
    expected.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect()
}

pub(crate) async fn known(watch: &Watch, limit: Duration, servers: usize) {
    eventually(limit, &format!("{servers} instances"), async || match watch.latest() {
        Some(set) if set.len() == servers => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// Calls without a pause until it is stopped, and counts what succeeded and what did not.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    succeeded: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Load {
    pub(crate) fn start(channel: &Channel) -> Self {
        let (stop, succeeded) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counter, mut client) = (stop.clone(), succeeded.clone(), GreeterClient::new(channel.clone()));
        let task = tokio::spawn(async move {
            let mut failures = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match client.say_hello(HelloRequest { name: "you".into(), count: 0 }).await {
                    Ok(_) => _ = counter.fetch_add(1, Ordering::Relaxed),
                    Err(status) => failures.push(status.to_string()),
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            failures
        });
        Self { stop, succeeded, task }
    }

    pub(crate) async fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.task.await.unwrap();
        (self.succeeded.load(Ordering::Relaxed), failures)
    }
}
