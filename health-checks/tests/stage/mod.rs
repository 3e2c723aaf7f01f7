//! What the tests play on: a registry in memory, checks that answer as they are told, and facts that are waited for.

mod scripted;
mod sockets;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use discovery_core::memory::MemoryStore;
use discovery_core::picker::RoundRobin;
use discovery_core::{Backend, Balancer, Context, Instance, Registration, Standing};
pub(crate) use discovery_harness::until;
use discovery_harness::{SOON, eventually};
use discovery_health::{Check, Checker, CheckerOptions, Report, Verdict};
use tokio::time::sleep;

pub(crate) use scripted::{Does, Scripted};
pub(crate) use sockets::{HttpServer, serve};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// One service, "pay", in a registry in memory.
pub(crate) struct Stage {
    pub(crate) store: MemoryStore,
    pub(crate) backend: Arc<dyn Backend>,
}

impl Stage {
    pub(crate) fn set() -> Self {
        let store = MemoryStore::new();
        Self { backend: store.connect(), store }
    }

    /// Registers an address under an id.
    pub(crate) async fn register(&self, id: &str, endpoint: impl Display) -> Registration {
        let instance = Instance::builder("pay").id(id).endpoint(&endpoint.to_string()).build().unwrap();
        self.backend.register(instance, Default::default()).await.unwrap()
    }

    /// Registers instances that a scripted check knows by their ids.
    pub(crate) async fn join(&self, ids: &[&str]) -> Vec<Registration> {
        let mut registrations = Vec::new();
        for id in ids {
            registrations.push(self.register(id, format!("grpc://{id}:1")).await);
        }
        registrations
    }

    pub(crate) fn balancer(&self) -> Balancer {
        Balancer::new(self.backend.watch("pay"), RoundRobin::new())
    }

    /// A checker once a second, in virtual time.
    pub(crate) fn checker(&self, check: &Scripted) -> Checker {
        self.checker_with(check.clone(), CheckerOptions::default().with_interval(SECOND))
    }

    pub(crate) fn checker_with(&self, check: impl Check, options: CheckerOptions) -> Checker {
        Checker::with_options(self.backend.watch("pay"), check, options)
    }

    /// A checker for servers on loopback, as fast as it may be.
    pub(crate) fn quick(&self, check: impl Check) -> Checker {
        let options = CheckerOptions::default().with_interval(Duration::from_millis(10));
        self.checker_with(check, options)
    }
}

/// Waits for a verdict, and returns the report that says it.
pub(crate) async fn verdict(checker: &Checker, id: &str, verdict: Verdict) -> Report {
    eventually(SOON, &format!("{id} is {verdict}"), async || match checker.report(id) {
        Some(report) if report.verdict() == verdict => Ok(report),
        Some(report) => Err(report.to_string()),
        None => Err(format!("no report of {id}")),
    })
    .await
}

/// Lets virtual time pass, for what must not happen in it.
pub(crate) async fn pass(time: Duration) {
    sleep(time).await;
}

/// Picks that often and counts whom.
pub(crate) fn picks(balancer: &Balancer, count: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..count {
        let pick = balancer.pick(&Context::default()).unwrap();
        *counts.entry(pick.instance().id().to_owned()).or_insert(0) += 1;
    }
    counts
}

/// Waits until each of these, and nobody else, is picked.
pub(crate) async fn picked(balancer: &Balancer, ids: &[&str]) {
    eventually(SOON, &format!("{ids:?} are picked"), async || {
        if balancer.pick(&Context::default()).is_err() {
            return Err("nobody".to_owned());
        }
        let now: Vec<_> = picks(balancer, 4 * ids.len()).into_keys().collect();
        if now == ids { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
}

/// What the balancer says of an instance.
pub(crate) fn standing(balancer: &Balancer, id: &str) -> Option<Standing> {
    balancer.explain().into_iter().find(|standing| standing.instance().id() == id)
}

/// Whether the balancer says that an instance is unhealthy for a reason that holds these words.
pub(crate) fn is_held_against(balancer: &Balancer, id: &str, words: &str) -> bool {
    standing(balancer, id).is_some_and(|standing| {
        let text = standing.to_string();
        text.contains("unhealthy: ") && text.contains(words)
    })
}
