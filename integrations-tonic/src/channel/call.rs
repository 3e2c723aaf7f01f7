//! One call: choose a connected instance, send, and wait for the response's headers.

use discovery_core::{Context, Outcome};
use http::header::USER_AGENT;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::{Code, Status};

use super::builder::{DEFAULT_WAIT, WhenEmpty};
use super::deadline::timeout_of;
use super::fleet::{Chosen, Fleet};
use super::outcome;

pub(super) async fn call(fleet: &Fleet, mut request: Request<Body>) -> Result<Response<Body>, Status> {
    let started = Instant::now();
    let when_empty = fleet.options().when_empty;
    let deadline = timeout_of(request.headers()).and_then(|timeout| started.checked_add(timeout));
    let patience = match when_empty {
        WhenEmpty::Wait(patience) => patience,
        // What may be waited for then is a first dial, which has a timeout of its own.
        WhenEmpty::FailFast => DEFAULT_WAIT,
    };
    let give_up = deadline.or_else(|| started.checked_add(patience));

    add_user_agent(request.headers_mut(), &fleet.options().user_agent)?;
    let uri = request.uri().clone();
    let context = Context::default().with_method(uri.path());
    // Subscribed before the first choice, so that nothing between a choice in vain and the wait is missed.
    let (mut news, mut selections) = (fleet.subscribe(), fleet.balancer().selections());
    loop {
        news.mark_unchanged();
        if let Some(chosen) = fleet.choose(&context) {
            match send(chosen, request, &uri, deadline).await {
                Sent::Answered(answer) => return answer,
                // Its connection ended with nothing sent, so the next choice is another one.
                Sent::Not(back) => request = back,
            }
            continue;
        }
        // The first dial may have come to its end since the choice; then there is news.
        if when_empty == WhenEmpty::FailFast && !fleet.is_hopeful() && !news.has_changed().unwrap_or(false) {
            return Err(Status::unavailable(fleet.nobody(&context)));
        }
        let change = async {
            tokio::select! {
                _ = news.changed() => {}
                () = selections.changed() => {}
            }
        };
        let heard = match give_up {
            Some(give_up) => timeout_at(give_up, change).await.is_ok(),
            None => {
                change.await;
                true
            }
        };
        if !heard {
            let waited = format!("{}; waited {:?}", fleet.nobody(&context), started.elapsed());
            return Err(Status::unavailable(waited));
        }
    }
}

enum Sent {
    Answered(Result<Response<Body>, Status>),
    Not(Request<Body>),
}

async fn send(chosen: Chosen, mut request: Request<Body>, uri: &Uri, deadline: Option<Instant>) -> Sent {
    let Chosen { pick, mut sender, authority } = chosen;
    *request.uri_mut() = match with_origin(uri, authority.clone()) {
        Ok(uri) => uri,
        Err(error) => {
            return Sent::Answered(Err(Status::internal(format!("no URI for {uri} at {authority}: {error}"))));
        }
    };
    let sending = sender.try_send_request(request);
    // A connection whose instance is gone ends once nobody holds a sender.
    drop(sender);
    let answered = match deadline {
        Some(deadline) => timeout_at(deadline, sending).await,
        None => Ok(sending.await),
    };
    let too_late = || Status::deadline_exceeded(format!("no answer from {authority} within the deadline"));
    match answered {
        // tonic's server keeps the caller's deadline too, and says CANCELLED when it is over: which of the two clocks is read first
        // must not change what the caller sees.
        Ok(Ok(response))
            if outcome::code_in(response.headers()) == Some(Code::Cancelled)
                && deadline.is_some_and(|deadline| Instant::now() >= deadline) =>
        {
            pick.finish(Outcome::Failure);
            Sent::Answered(Err(too_late()))
        }
        Ok(Ok(response)) => Sent::Answered(Ok(outcome::observe(response, pick))),
        Ok(Err(mut error)) => match error.take_message() {
            Some(request) => {
                // Nothing was sent, so there is no request to count.
                pick.discard();
                Sent::Not(request)
            }
            None => {
                pick.finish(Outcome::Failure);
                Sent::Answered(Err(broken(&authority, error.into_error())))
            }
        },
        Err(_) => {
            pick.finish(Outcome::Failure);
            Sent::Answered(Err(too_late()))
        }
    }
}

/// What a broken connection or a reset stream means to the caller: tonic's reading of the HTTP/2 reason, and without one, that the
/// instance is unavailable.
pub(super) fn broken(authority: &impl std::fmt::Display, error: hyper::Error) -> Status {
    let text = format!("the call to {authority} broke: {error}");
    let read = Status::from_error(Box::new(error));
    // tonic takes an end without a reason for UNKNOWN, and a connection task that is gone for CANCELLED.
    let code = match read.code() {
        Code::Unknown | Code::Cancelled => Code::Unavailable,
        code => code,
    };
    let mut status = Status::new(code, text);
    status.set_source(std::sync::Arc::new(read));
    status
}

fn with_origin(uri: &Uri, authority: Authority) -> Result<Uri, http::uri::InvalidUriParts> {
    let mut parts = uri.clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority);
    Uri::from_parts(parts)
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
