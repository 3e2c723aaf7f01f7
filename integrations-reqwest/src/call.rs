//! One request to a service: choose an instance, send, move on or send again, until there is an answer.

use std::time::Duration;

use discovery_core::{Context, ErrorKind, WhenEmpty};
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Result};
use tokio::time::{Instant, sleep, timeout_at};

use crate::attempt::{Attempt, send};
use crate::body::{Condition, Loan};
use crate::error::CallError;
use crate::outcome::{observe, of_unread};
use crate::service::{Choice, Shared};

/// What a request has got that is sent again: better than nothing, if nobody takes it then.
type Kept = Result<(Response, Loan)>;

/// Calls a service, and answers the response and what was lent for it. A [`CallError`] means that nothing was sent.
pub(crate) async fn call(
    service: &Shared,
    request: &mut Request,
    extensions: &mut Extensions,
) -> Result<(Response, Loan)> {
    let started = Instant::now();
    let deadline = request.timeout().and_then(|timeout| started.checked_add(*timeout));
    // Most requests need not wait, so nothing is prepared for it before one has to.
    let mut waiting: Option<Box<Waiting<'_>>> = None;
    let method = format!("{} {}", request.method(), request.url().path());
    let key = service.options.key.key(request, extensions);
    let mut context = Context::default().with_method(&method);
    if let Some(key) = &key {
        context = context.with_key(key.as_bytes());
    }
    let mut refused = 0;
    // On the heap for the same reason.
    let mut kept: Option<Box<Kept>> = None;
    let mut retrying = Retrying { service, failed: 0, allowed: service.options.allows(request.method()), deadline };
    loop {
        if let Some(waiting) = &mut waiting {
            waiting.listen();
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return match kept {
                Some(kept) => *kept,
                None => fail(nobody(service, &Choice::Unreachable).with_waited(started.elapsed())),
            };
        }
        let chosen = match (service.choose(&context), kept.take()) {
            (Choice::Chosen(chosen), before) => {
                kept = before;
                chosen
            }
            // It was sent, so what came of it is told, and nobody is waited for.
            (_, Some(kept)) => return *kept,
            (Choice::NoClient(error), None) => {
                let why = "the settings of the client cannot be used";
                return fail(CallError::new(ErrorKind::InvalidInput, &service.name, why).with_source(error));
            }
            (in_vain, None) => {
                match &mut waiting {
                    // On the heap, so that requests which need not wait are small: what is larger than a kilobyte is allocated slowly.
                    Some(waiting) => Box::pin(waiting.for_news(&in_vain)).await.map_err(Error::middleware)?,
                    // The next choice is made with news subscribed to, so that nothing between it and the wait is missed.
                    None => waiting = Some(Box::new(Waiting::begin(service, started, deadline))),
                }
                continue;
            }
        };
        let called = chosen.way.called.clone();
        extensions.insert(called.clone());
        match send(service, chosen, request, deadline).await {
            Attempt::NotSent => {
                // Whoever will not wait asks nobody twice, even if the first may be tried again by now.
                refused += 1;
                let fails_fast = service.options.when_empty == WhenEmpty::FailFast;
                if fails_fast && refused >= service.balancer.known() {
                    return match kept {
                        Some(kept) => *kept,
                        None => fail(nobody(service, &Choice::Unreachable)),
                    };
                }
                // The next choice is another one, or waits.
            }
            Attempt::Answered(response, pick, loan) => {
                let asked = request.url().clone();
                let is_whole = loan.condition() == Condition::Whole;
                // It may be begun in between.
                let pause = retrying.after_answer(&response, is_whole).filter(|_| loan.back(request));
                let Some(pause) = pause else {
                    return Ok((observe(response, Some(pick), called, asked), loan));
                };
                // Reported before the next pick, which is to go by it.
                pick.finish(of_unread(response.status()));
                kept = Some(Box::new(Ok((observe(response, None, called, asked), Loan::repaid()))));
                Box::pin(sleep(pause)).await;
            }
            Attempt::Broken(error, is_whole) => {
                let Some(pause) = retrying.after_break(&error, is_whole) else {
                    return Err(error.into());
                };
                kept = Some(Box::new(Err(error.into())));
                Box::pin(sleep(pause)).await;
            }
        }
    }
}

fn fail<T>(error: CallError) -> Result<T> {
    Err(Error::middleware(error))
}

/// Counts the attempts that were sent in vain.
struct Retrying<'a> {
    service: &'a Shared,
    failed: u32,
    /// Whether the request may be sent again at all.
    allowed: bool,
    deadline: Option<Instant>,
}

impl Retrying<'_> {
    /// How long to wait before one more attempt, if the answer asks for one.
    fn after_answer(&mut self, response: &Response, is_whole: bool) -> Option<Duration> {
        if !self.service.options.retries.as_ref().is_some_and(|retries| retries.has(response.status())) {
            if !response.status().is_server_error() {
                self.service.budget.succeeded();
            }
            return None;
        }
        if is_whole { self.pause() } else { None }
    }

    fn after_break(&mut self, error: &reqwest::Error, is_whole: bool) -> Option<Duration> {
        // Whoever set a timeout wants to hear of it when it is over; what never left this process fails again.
        if error.is_timeout() || !error.is_request() || !is_whole {
            return None;
        }
        self.pause()
    }

    /// How long to wait before one more attempt, if there may be one.
    fn pause(&mut self) -> Option<Duration> {
        let retries = self.service.options.retries.as_ref().filter(|_| self.allowed)?;
        self.failed += 1;
        self.service.budget.failed();
        let pause = retries.policy.wait_after(self.failed).filter(|_| self.service.budget.permits())?;
        // What came is better than to be told that the time is over.
        let late = self.deadline.is_some_and(|deadline| Instant::now() + pause >= deadline);
        (!late).then_some(pause)
    }
}

/// Waits for somebody who can take the request.
struct Waiting<'a> {
    service: &'a Shared,
    started: Instant,
    give_up: Option<Instant>,
    /// Subscribed before the first choice, so that nothing between a choice in vain and the wait is missed.
    news: tokio::sync::watch::Receiver<u64>,
    selections: discovery_core::Selections,
    /// Whether the first set was still to come before the last choice, and nothing stood in its way. Asked after the choice, it could have
    /// come in between.
    first_set: bool,
}

impl<'a> Waiting<'a> {
    fn begin(service: &'a Shared, started: Instant, deadline: Option<Instant>) -> Self {
        let give_up = deadline.or_else(|| started.checked_add(service.options.when_empty.patience()));
        let (news, selections) = (service.absences.subscribe(), service.balancer.selections());
        Self { service, started, give_up, news, selections, first_set: true }
    }

    /// Forgets news from before the next choice.
    fn listen(&mut self) {
        self.news.mark_unchanged();
        let freshness = self.service.balancer.freshness();
        self.first_set = freshness.is_loading() && freshness.cause().is_none();
    }

    /// Waits until another choice may end otherwise, or says why nobody can take the request.
    async fn for_news(&mut self, in_vain: &Choice) -> std::result::Result<(), CallError> {
        let service = self.service;
        if service.is_closed() && matches!(in_vain, Choice::Nobody(_)) {
            return Err(CallError::new(
                ErrorKind::Closed,
                &service.name,
                "the backend was closed; connect again to use it",
            ));
        }
        if service.options.when_empty == WhenEmpty::FailFast && !self.first_set {
            return Err(nobody(self.service, in_vain));
        }
        let change = async {
            tokio::select! {
                _ = self.news.changed() => {}
                () = self.selections.changed() => {}
            }
        };
        let heard = match self.give_up {
            Some(give_up) => timeout_at(give_up, change).await.is_ok(),
            None => {
                change.await;
                true
            }
        };
        if heard { Ok(()) } else { Err(nobody(self.service, in_vain).with_waited(self.started.elapsed())) }
    }
}

/// Why nobody can take a request.
fn nobody(service: &Shared, in_vain: &Choice) -> CallError {
    let balancer = &service.balancer;
    let (known, freshness) = (balancer.known(), balancer.freshness());
    let error = match in_vain {
        // The balancer says how many are known and how stale they are.
        Choice::Nobody(error) => {
            let live = if freshness.is_live() { format!("; {freshness}") } else { String::new() };
            let why = format!("{}{live}", error.message());
            CallError::new(ErrorKind::NoInstance, &service.name, why).with_source(error.clone())
        }
        _ => {
            let why = format!("{known} known, nobody could be reached; {freshness}");
            CallError::new(ErrorKind::Unavailable, &service.name, why)
        }
    };
    error.with_set(known, freshness).with_attempt(service.absences.last())
}
