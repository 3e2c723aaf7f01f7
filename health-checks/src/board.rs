//! What is known of every instance, and who wants to know it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use discovery_core::{Balancer, Condition, Endpoint};
use tokio::task::AbortHandle;

use crate::tally::{Tally, Thresholds};
use crate::{LastCheck, Report, Verdict};

/// Balancers are told under the one lock, so that the last word that they hear is the newest.
#[derive(Default)]
pub(crate) struct Board(Mutex<State>);

#[derive(Default)]
struct State {
    entries: HashMap<Arc<str>, Entry>,
    /// By the number of their attachment.
    balancers: Vec<(u64, Balancer)>,
    /// Counts entries and attachments, so that no two have the same number.
    count: u64,
    /// The checker is gone: nothing is entered any more.
    closed: bool,
}

/// An instance that is in the set. Its checks end with it.
struct Entry {
    /// Tells it from an earlier one of the same id, whose last check may just be ending.
    number: u64,
    tally: Tally,
    report: Report,
    task: Option<AbortHandle>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn unhealthy(&self) -> impl Iterator<Item = (&str, Arc<str>)> {
        self.entries.values().filter_map(|entry| Some((entry.report.id(), entry.report.why.clone()?)))
    }

    fn tell_all(&self, id: &str, condition: &Condition) {
        for (_, balancer) in &self.balancers {
            // Who does not know the instance yet asks again when it does.
            balancer.set_health(id, condition.clone());
        }
    }
}

impl Board {
    /// Enters an instance, anew if it is there already. `start` gets the number of the entry and starts its checks.
    pub(crate) fn enter(&self, id: &str, endpoint: Option<Endpoint>, start: impl FnOnce(u64) -> Option<AbortHandle>) {
        self.leave(id);
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let (id, number): (Arc<str>, _) = (id.into(), state.number());
        let report = Report::new(id.clone(), endpoint);
        let entry = Entry { number, tally: Tally::new(report.verdict), report, task: start(number) };
        state.entries.insert(id, entry);
    }

    /// Forgets an instance. A balancer that has not heard yet that it left, or that hears only that it came back, must not hold against
    /// it what was found before.
    pub(crate) fn leave(&self, id: &str) {
        let mut state = self.lock();
        if let Some(entry) = state.entries.remove(id)
            && entry.report.why.is_some()
        {
            state.tell_all(id, &Condition::Healthy);
        }
    }

    /// Enters how a check ended. Returns whether there is to be another one.
    pub(crate) fn hear(&self, id: &str, number: u64, check: LastCheck, thresholds: Thresholds) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.entries.get_mut(id).filter(|entry| entry.number == number) else {
            return false;
        };
        let changed = entry.tally.hear(check.outcome.is_ok(), thresholds);
        let report = &mut entry.report;
        report.verdict = entry.tally.verdict();
        report.in_a_row = entry.tally.in_a_row();
        report.checks += 1;
        let before = report.why.take();
        report.why = match (&check.outcome, report.verdict) {
            (Err(error), Verdict::Unhealthy) => Some(error.to_string().into()),
            (Ok(()), Verdict::Unhealthy) => before.clone(),
            _ => None,
        };
        if changed {
            report.since = SystemTime::now();
            tell_log(report);
        }
        report.last = Some(check);
        if report.why != before {
            let condition = report.why.clone().map_or(Condition::Healthy, Condition::Unhealthy);
            state.tell_all(id, &condition);
        }
        true
    }

    /// Tells a balancer what is known, and from now on what is found. Returns the number under which it is known.
    pub(crate) fn attach(&self, balancer: &Balancer) -> u64 {
        let mut state = self.lock();
        let number = state.number();
        state.balancers.push((number, balancer.clone()));
        drop(state);
        self.tell(number);
        number
    }

    /// Tells a balancer again what is known, as it may know instances now that it did not know before.
    pub(crate) fn tell(&self, number: u64) {
        let state = self.lock();
        if let Some((_, balancer)) = state.balancers.iter().find(|(known, _)| *known == number) {
            for (id, why) in state.unhealthy() {
                balancer.set_health(id, Condition::Unhealthy(why));
            }
        }
    }

    /// Tells a balancer nothing more, and takes back what it was told.
    pub(crate) fn detach(&self, number: u64) {
        let mut state = self.lock();
        let Some(at) = state.balancers.iter().position(|(known, _)| *known == number) else {
            return;
        };
        let (_, balancer) = state.balancers.swap_remove(at);
        for (id, _) in state.unhealthy() {
            balancer.set_health(id, Condition::Healthy);
        }
    }

    /// Ends all checks for good.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.entries.clear();
    }

    /// All reports, sorted by id.
    pub(crate) fn reports(&self) -> Vec<Report> {
        let mut reports: Vec<_> = self.lock().entries.values().map(|entry| entry.report.clone()).collect();
        reports.sort_by(|a, b| a.id.cmp(&b.id));
        reports
    }

    pub(crate) fn report(&self, id: &str) -> Option<Report> {
        self.lock().entries.get(id).map(|entry| entry.report.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell_log(report: &Report) {
    match &report.why {
        Some(why) => tracing::warn!(id = report.id(), checks = report.in_a_row, %why, "an instance is unhealthy"),
        None => tracing::info!(id = report.id(), checks = report.in_a_row, "an instance is healthy"),
    }
}
