//! One attempt: a request is lent to an instance, and comes back if nothing of it was sent.

use std::error::Error as _;

use discovery_core::Outcome;
use reqwest::{Request, Response, Url};
use tokio::time::Instant;

use crate::body::{Loan, Returned};
use crate::error::{FailedAttempt, causes};
use crate::outcome::observe;
use crate::service::{Chosen, Shared};

/// What became of an attempt.
pub(crate) enum Attempt {
    /// An answer, and what is left of the request.
    Answered(Response, Returned),
    /// Nothing was sent, and the request is as it was.
    NotSent(Request),
    /// It was sent and broke, or its time is over; with the request if it can be sent again.
    Broken(reqwest::Error, Option<Request>),
}

/// Sends a request to an instance. Dropped, it counts as cancelled.
pub(crate) async fn send(service: &Shared, chosen: Chosen, request: Request, deadline: Option<Instant>) -> Attempt {
    let Chosen { pick, way } = chosen;
    let (mut request, loan) = Loan::of(request);
    way.target.lead(request.url_mut());
    if let Some(deadline) = deadline {
        *request.timeout_mut() = Some(deadline.saturating_duration_since(Instant::now()));
    }
    let result = way.client.execute(request).await;
    let called = way.called();
    let id = called.instance().id();
    let error = match result {
        Ok(response) => {
            service.absences.forget(id);
            let asked = loan.request().url().clone();
            return Attempt::Answered(observe(response, pick, called, asked), loan.back());
        }
        Err(error) => error,
    };
    let address = way.target.address(loan.request().url());
    let blame = blame(&error);
    tracing::debug!(service = %service.name, endpoint = %called.endpoint(), %error, "an attempt failed");
    match (blame, loan.back().whole()) {
        (Blame::NotSent, Some(request)) => {
            let endpoint = Some(called.endpoint().clone());
            service.unreachable(pick, FailedAttempt { id: id.into(), endpoint, why: causes(error).into() });
            Attempt::NotSent(request)
        }
        (Blame::Caller, back) => {
            // What cannot be sent says nothing about the instance.
            pick.discard();
            Attempt::Broken(named(error, address), back)
        }
        (Blame::NotSent | Blame::Instance, back) => {
            pick.finish(Outcome::Failure);
            service.absences.forget(id);
            Attempt::Broken(named(error, address), back)
        }
    }
}

/// Whose fault it is that an attempt failed.
enum Blame {
    /// Nothing was sent: there was no connection, or the one that was made ended before the request's turn.
    NotSent,
    /// The request cannot be sent, or its body broke off.
    Caller,
    Instance,
}

fn blame(error: &reqwest::Error) -> Blame {
    if error.is_connect() {
        return Blame::NotSent;
    }
    if error.is_builder() {
        return Blame::Caller;
    }
    let mut source = error.source();
    while let Some(cause) = source {
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
        None => error.without_url(),
    }
}
