//! A check that answers as it is told, and notes when and how it was asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use discovery_core::{Endpoint, Error, ErrorKind, Result};
use discovery_health::Check;
use tokio::time::{Instant, sleep};

/// What it does when it is asked about a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Does {
    Well,
    Fail,
    /// It fails and succeeds in turn.
    Flap,
    Hang,
    Panic,
}

/// Clones are the same check.
#[derive(Clone, Default)]
pub(crate) struct Scripted(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By host; the others are well.
    script: HashMap<String, Does>,
    asked: HashMap<String, Vec<Instant>>,
    takes: Duration,
    running: usize,
    most: usize,
}

impl Scripted {
    pub(crate) fn set(&self, host: &str, does: Does) {
        self.lock().script.insert(host.to_owned(), does);
    }

    /// How long each check takes.
    pub(crate) fn takes(&self, time: Duration) {
        self.lock().takes = time;
    }

    /// When a host was asked.
    pub(crate) fn asked(&self, host: &str) -> Vec<Instant> {
        self.lock().asked.get(host).cloned().unwrap_or_default()
    }

    /// How many checks have begun.
    pub(crate) fn count(&self) -> usize {
        self.lock().asked.values().map(Vec::len).sum()
    }

    /// How many checks run now, and how many did at most.
    pub(crate) fn running(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running, state.most)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// Counts a check as running, also while it hangs, until it is dropped.
struct Running(Scripted);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
    }
}

#[async_trait]
impl Check for Scripted {
    fn schemes(&self) -> &[&str] {
        &["grpc"]
    }

    async fn check(&self, endpoint: &Endpoint) -> Result<()> {
        let host = endpoint.host();
        let (does, takes, count) = {
            let mut state = self.lock();
            let asked = state.asked.entry(host.to_owned()).or_default();
            asked.push(Instant::now());
            let count = asked.len();
            state.running += 1;
            state.most = state.most.max(state.running);
            (state.script.get(host).copied().unwrap_or(Does::Well), state.takes, count)
        };
        let _running = Running(self.clone());
        if !takes.is_zero() {
            sleep(takes).await;
        }
        match does {
            Does::Well => Ok(()),
            Does::Flap if count % 2 == 0 => Ok(()),
            Does::Fail | Does::Flap => {
                Err(Error::new(ErrorKind::Unavailable, "check", host, "out of order, as it should be"))
            }
            Does::Hang => std::future::pending().await,
            Does::Panic => panic!("as it should"),
        }
    }
}
