//! One call: choose a connected instance, send, and wait for the response's headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use discovery_core::{Context, Outcome, WhenEmpty};
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::{Code, Status};

use super::claim::{Claim, Trace};
use super::connection::Permit;
use super::deadline::timeout_of;
use super::fleet::{Chosen, Fleet};
use super::key::{HashKey, Heads};
use super::outcome::{self, Observer};
use super::retries::Retries;
use super::stream::Failed;
use super::target::Target;

pub(super) type Answer = Result<Response<Body>, Status>;

/// What all attempts of a call have in common.
pub(super) struct Call<'a> {
    fleet: &'a Fleet,
    /// Whoever asks for retries has their budget told.
    pub(super) retries: Option<Arc<Retries>>,
    started: Instant,
    /// Whether a server has refused it unseen, which is forgiven once. Set and read by one task, hence relaxed.
    was_refused: AtomicBool,
    /// The caller's, from `grpc-timeout`.
    pub(super) deadline: Option<Instant>,
    /// When it waits for an instance no longer.
    give_up: Option<Instant>,
    key: Option<HashKey>,
}

/// Calls with a request, which is used up.
pub(super) async fn call(fleet: &Fleet, request: &mut Request<Body>) -> Answer {
    let options = fleet.options();
    add_user_agent(request.headers_mut(), &options.user_agent)?;
    let started = Instant::now();
    let deadline = timeout_of(request.headers()).and_then(|timeout| started.checked_add(timeout));
    let call = Call {
        fleet,
        was_refused: AtomicBool::new(false),
        retries: options.retries.clone().filter(|retries| retries.apply_to(request.uri().path())),
        started,
        deadline,
        give_up: deadline.or_else(|| started.checked_add(options.when_empty.patience())),
        key: options.key.of(request),
    };
    match &call.retries {
        // On the heap, so that calls without retries are small, which are moved there as a whole.
        Some(retries) => Box::pin(super::persist::call(&call, retries, std::mem::take(request))).await,
        None => call.attempt(request, &Trace::default()).await.answer,
    }
}

/// How an attempt ended.
pub(super) struct Attempted {
    pub(super) answer: Answer,
    /// Whether anything was sent. If not, nobody could be called in time.
    pub(super) was_sent: bool,
}

enum Sent {
    Answered(Answer),
    Not,
    /// The server says that it has not looked at it.
    Refused {
        by: Arc<str>,
        status: Status,
    },
}

impl Call<'_> {
    /// Sends to one instance after the other until one takes the request, and waits for its answer. What is left of the request then has no
    /// body.
    pub(super) async fn attempt(&self, request: &mut Request<Body>, trace: &Trace) -> Attempted {
        let mut refused_by: Option<Arc<str>> = None;
        loop {
            let avoid = refused_by.as_deref().or(trace.avoid());
            let chosen = match self.choose(request, avoid) {
                Some(chosen) => chosen,
                // On the heap, so that calls which need not wait are small.
                None => match Box::pin(self.wait(request, avoid)).await {
                    Ok(chosen) => chosen,
                    Err(status) => return Attempted { answer: Err(status), was_sent: false },
                },
            };
            let (chosen, permit) = match chosen.sender.try_enter() {
                Some(permit) => (chosen, permit),
                None => match Box::pin(self.wait_for_room(chosen, request, avoid)).await {
                    Ok(Some(found)) => found,
                    Ok(None) => continue,
                    Err(status) => return Attempted { answer: Err(status), was_sent: false },
                },
            };
            match self.send(chosen, permit, request, trace).await {
                Sent::Answered(answer) => return Attempted { answer, was_sent: true },
                // Its connection ended with nothing sent, so the next choice is another one.
                Sent::Not => {}
                // Sent once more, as gRPC's retry design (gRFC A6, "Transparent Retries") has it: who refuses again means it.
                Sent::Refused { by, .. } if !self.was_refused.swap(true, Ordering::Relaxed) => refused_by = Some(by),
                Sent::Refused { status, .. } => return Attempted { answer: Err(status), was_sent: true },
            }
        }
    }

    /// Lets something be done with what a picker may know of the call. One that is to go elsewhere than before has no key, which would bring it
    /// back.
    fn with_context<T>(&self, request: &Request<Body>, avoid: Option<&str>, what: impl FnOnce(&Context<'_>) -> T) -> T {
        let heads = Heads(request.headers());
        let mut context = Context::default().with_method(request.uri().path()).with_headers(&heads);
        if let (Some(key), None) = (&self.key, avoid) {
            context = context.with_key(key.bytes());
        }
        what(&context)
    }

    /// An instance that can take the call now.
    fn choose(&self, request: &Request<Body>, avoid: Option<&str>) -> Option<Chosen> {
        self.with_context(request, avoid, |context| self.fleet.choose(context, avoid))
    }

    /// Why there is none.
    fn nobody(&self, request: &Request<Body>, avoid: Option<&str>) -> String {
        self.with_context(request, avoid, |context| self.fleet.nobody(context))
    }

    /// An instance that can take the call, as soon as there is one.
    async fn wait(&self, request: &mut Request<Body>, avoid: Option<&str>) -> Result<Chosen, Status> {
        let fleet = self.fleet;
        // Subscribed before the next choice, so that nothing between a choice in vain and the wait is missed.
        let (mut news, mut selections) = (fleet.subscribe(), fleet.balancer().selections());
        loop {
            news.mark_unchanged();
            if let Some(chosen) = self.choose(request, avoid) {
                return Ok(chosen);
            }
            // The first dial may have come to its end since the choice; then there is news.
            let is_hopeless = !fleet.is_hopeful() && !news.has_changed().unwrap_or(false);
            if fleet.options().when_empty == WhenEmpty::FailFast && is_hopeless {
                return Err(Status::unavailable(self.nobody(request, avoid)));
            }
            let change = async {
                tokio::select! {
                    _ = news.changed() => {}
                    () = selections.changed() => {}
                }
            };
            if within(self.give_up, change).await.is_none() {
                let waited = format!("{}; waited {:?}", self.nobody(request, avoid), self.started.elapsed());
                return Err(Status::unavailable(waited));
            }
        }
    }

    /// Waits until who was chosen takes one more call, or somebody else does; `None` if the choice is to be made anew.
    async fn wait_for_room(
        &self,
        chosen: Chosen,
        request: &mut Request<Body>,
        avoid: Option<&str>,
    ) -> Result<Option<(Chosen, Permit)>, Status> {
        let (mut news, mut selections) = (self.fleet.subscribe(), self.fleet.balancer().selections());
        loop {
            news.mark_unchanged();
            if let Some(other) = self.choose(request, avoid) {
                match other.sender.try_enter() {
                    Some(permit) => {
                        chosen.pick.discard();
                        return Ok(Some((other, permit)));
                    }
                    None => other.pick.discard(),
                }
            }
            let change = async {
                tokio::select! {
                    biased;
                    permit = chosen.sender.enter() => Some(permit),
                    _ = news.changed() => None,
                    () = selections.changed() => None,
                }
            };
            match within(self.give_up, change).await {
                Some(Some(Some(permit))) => return Ok(Some((chosen, permit))),
                Some(Some(None)) => {
                    chosen.pick.discard();
                    return Ok(None);
                }
                Some(None) => {}
                None => {
                    let (whom, waited) = (self.whom(&chosen.target), self.started.elapsed());
                    chosen.pick.discard();
                    return Err(Status::unavailable(format!("{whom} takes no more calls at once; waited {waited:?}")));
                }
            }
        }
    }

    async fn send(&self, chosen: Chosen, permit: Permit, request: &mut Request<Body>, trace: &Trace) -> Sent {
        let Chosen { pick, sender, target } = chosen;
        let claim = Claim::new(pick, trace);
        if let Err(error) = lead(request.uri_mut(), &target) {
            claim.discard();
            let text = format!("no URI for the call at {}: {error}", target.authority);
            return Sent::Answered(Err(Status::internal(text)));
        }
        let sending = sender.send(permit, request);
        let answered = within(self.deadline, sending).await;
        let too_late = || outcome::too_late(&self.whom(&target));
        match answered {
            // tonic's server keeps the caller's deadline too, and says CANCELLED when it is over: which of the two clocks is read first
            // must not change what the caller sees.
            Some(Ok(response))
                if outcome::code_in(response.headers()) == Some(Code::Cancelled)
                    && self.deadline.is_some_and(|deadline| Instant::now() >= deadline) =>
            {
                claim.finish(Outcome::Failure);
                Sent::Answered(Err(too_late()))
            }
            Some(Ok(response)) => {
                let observer = Observer {
                    pick: claim.into_pick(),
                    target,
                    known: self.fleet.balancer().known(),
                    retries: self.retries.clone(),
                    deadline: self.deadline,
                };
                Sent::Answered(Ok(outcome::observe(response, observer)))
            }
            Some(Err(Failed::Ours(status))) => {
                // It says nothing about the instance.
                claim.discard();
                Sent::Answered(Err(status))
            }
            Some(Err(Failed::Unsent)) => {
                // There is no request to count.
                claim.discard();
                Sent::Not
            }
            Some(Err(Failed::Refused(error))) => {
                let by = claim.whom();
                claim.finish(Outcome::Failure);
                Sent::Refused { by, status: broken(&self.whom(&target), error) }
            }
            Some(Err(Failed::Broken(error))) => {
                let status = broken(&self.whom(&target), error);
                claim.finish(outcome::of_code(status.code()));
                Sent::Answered(Err(status))
            }
            None => {
                claim.finish(Outcome::Failure);
                Sent::Answered(Err(too_late()))
            }
        }
    }

    /// Who was called, for a status: the address, the service, and how many others there are.
    fn whom(&self, target: &Target) -> String {
        outcome::whom(target, self.fleet.balancer().known())
    }

    /// Whether that much time is left before the caller's deadline.
    pub(super) fn has_time_for(&self, wait: Duration) -> bool {
        let begin = Instant::now().checked_add(wait);
        self.deadline.is_none_or(|deadline| begin.is_some_and(|begin| begin < deadline))
    }
}

/// What a broken connection or a reset stream means to the caller: tonic's reading of the HTTP/2 reason, and without one, that the
/// instance is unavailable.
pub(super) fn broken(whom: &str, error: h2::Error) -> Status {
    let text = format!("the call to {whom} broke: {error}");
    // The reason of a connection's end is not that of the call, and tonic takes an end without one for UNKNOWN.
    let is_connections = error.is_go_away();
    let read = Status::from_error(Box::new(error));
    let code = match read.code() {
        Code::Unknown => Code::Unavailable,
        _ if is_connections => Code::Unavailable,
        code => code,
    };
    let mut status = Status::new(code, text);
    status.set_source(Arc::new(read));
    status
}

/// What comes until a moment, if there is one; `None` if nothing did.
async fn within<T>(until: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => timeout_at(until, future).await.ok(),
        None => Some(future.await),
    }
}

/// Makes a URI one at the target.
fn lead(uri: &mut Uri, target: &Target) -> Result<(), http::uri::InvalidUriParts> {
    let mut parts = std::mem::take(uri).into_parts();
    parts.scheme = Some(target.scheme.clone());
    parts.authority = Some(target.authority.clone());
    *uri = Uri::from_parts(parts)?;
    Ok(())
}

/// Puts our product behind whatever the request names already, as tonic's own channel does.
fn add_user_agent(headers: &mut HeaderMap, ours: &HeaderValue) -> Result<(), Status> {
    let value = match headers.get(USER_AGENT) {
        Some(theirs) => HeaderValue::from_bytes(&[theirs.as_bytes(), b" ", ours.as_bytes()].concat()),
        None => Ok(ours.clone()),
    };
    headers.insert(USER_AGENT, value.map_err(|error| Status::internal(format!("no user agent: {error}")))?);
    Ok(())
}
