//! One attempt: a request is lent to an instance, and comes back if nothing of it was sent.

use std::error::Error as _;

use discovery_core::{Outcome, Pick};
use reqwest::{Request, Response, Url};
use tokio::time::Instant;

use crate::body::{Condition, Loan};
use crate::error::{FailedAttempt, causes};
use crate::service::{Chosen, Shared, Way};

/// So many requests in a row without an answer in their time are one that could not be reached: nobody can tell a connection that does not
/// come from an answer that does not. One slow answer is not enough; more would each cost a request its time, as nothing is sent again then.
const LATE: u32 = 3;

/// What became of an attempt.
pub(crate) enum Attempt {
    /// An answer, the pick that is to be finished, and the loan: the connection may still be at sending.
    Answered(Response, Pick, Loan),
    /// Nothing was sent, and the request is as it was.
    NotSent,
    /// It was sent and broke, its time is over, or it cannot be sent; and whether it can be sent again.
    Broken(reqwest::Error, bool),
}

/// Sends a request to an instance, and leaves what is left of it. Dropped, it counts as cancelled.
pub(crate) async fn send(
    service: &Shared,
    chosen: Chosen,
    request: &mut Request,
    deadline: Option<Instant>,
) -> Attempt {
    let Chosen { pick, way } = chosen;
    let (answer, loan) = lend(&way, request, deadline);
    let result = answer.await;
    let called = &way.called;
    let id = called.instance().id();
    let error = match result {
        Ok(response) => {
            service.absences.forget(id);
            way.answered();
            return Attempt::Answered(response, pick, loan);
        }
        // The URL may hold a secret.
        Err(error) => error.without_url(),
    };
    let address = way.target.address(request.url());
    let blame = if loan.condition() == Condition::Broke { Blame::Caller } else { blame(&error) };
    // What is late may still be on its way, and is not sent again.
    let is_whole = matches!(blame, Blame::NotSent | Blame::Instance) && loan.back(request);
    tracing::debug!(service = %service.name, endpoint = %called.endpoint(), error = causes(&error), "an attempt failed");
    match (blame, is_whole) {
        (Blame::NotSent, true) => {
            let endpoint = Some(called.endpoint().clone());
            service.unreachable(pick, FailedAttempt { id: id.into(), endpoint, why: causes(&error).into() });
            Attempt::NotSent
        }
        (Blame::Caller, _) => {
            // What cannot be sent says nothing about the instance.
            pick.discard();
            Attempt::Broken(named(error, address), false)
        }
        (Blame::Late, _) => {
            let is_gone = way.late() >= LATE;
            pick.finish(if is_gone { Outcome::Unreachable } else { Outcome::Failure });
            // It was not reached, as far as anybody knows.
            let why = "no answer came in time".into();
            service.absences.still(FailedAttempt { id: id.into(), endpoint: Some(called.endpoint().clone()), why });
            Attempt::Broken(named(error, address), is_whole)
        }
        (Blame::NotSent | Blame::Instance, _) => {
            pick.finish(Outcome::Failure);
            service.absences.forget(id);
            way.answered();
            Attempt::Broken(named(error, address), is_whole)
        }
    }
}

/// Sends a copy. A function of its own, so that the future of an attempt has no room for one.
fn lend(
    way: &Way,
    request: &mut Request,
    deadline: Option<Instant>,
) -> (impl Future<Output = reqwest::Result<Response>> + use<>, Loan) {
    let (mut copy, loan) = Loan::of(request);
    way.target.lead(copy.url_mut());
    if let Some(deadline) = deadline {
        *copy.timeout_mut() = Some(deadline.saturating_duration_since(Instant::now()));
    }
    (way.client.execute(copy), loan)
}

/// Whose fault it is that an attempt failed.
enum Blame {
    /// Nothing was sent: there was no connection, or the one that was made ended before the request's turn.
    NotSent,
    /// The request cannot be sent, or its body broke off.
    Caller,
    /// Its time was over before there was an answer.
    Late,
    Instance,
}

fn blame(error: &reqwest::Error) -> Blame {
    if error.is_connect() {
        return Blame::NotSent;
    }
    if error.is_builder() {
        return Blame::Caller;
    }
    if error.is_timeout() {
        return Blame::Late;
    }
    let mut source = error.source();
    while let Some(cause) = source {
        // Its kind is private: a method or version that the connection does not speak. Pinned by the test of such a version.
        if cause.to_string().starts_with("client error (User") {
            return Blame::Caller;
        }
        match cause.downcast_ref::<hyper::Error>() {
            Some(error) if error.is_canceled() => return Blame::NotSent,
            Some(error) if error.is_user() => return Blame::Caller,
            _ => source = cause.source(),
        }
    }
    Blame::Instance
}

/// The error with the address that was called for its URL.
fn named(error: reqwest::Error, address: Option<Url>) -> reqwest::Error {
    match address {
        Some(address) => error.with_url(address),
        None => error,
    }
}
