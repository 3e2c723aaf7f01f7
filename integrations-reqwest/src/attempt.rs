//! One attempt: a request is lent to an instance, and comes back if nothing of it was sent.

use std::error::Error as _;

use discovery_core::Outcome;
use reqwest::{Request, Response, Url};
use tokio::time::Instant;

use crate::body::Loan;
use crate::error::{FailedAttempt, causes};
use crate::outcome::observe;
use crate::service::{Chosen, Shared};

/// What became of an attempt.
pub(crate) enum Attempt {
    /// An answer, and the request if it can be sent again.
    Answered(Response, Option<Request>),
    /// Nothing was sent, and the request is as it was.
    NotSent(Request),
    /// It was sent and broke, or its time is over; with the request if it can be sent again.
    Broken(reqwest::Error, Option<Request>),
}

/// Sends a request to an instance. Dropped, it counts as cancelled.
pub(crate) async fn send(service: &Shared, chosen: Chosen, request: Request, deadline: Option<Instant>) -> Attempt {
    let Chosen { pick, target, client, called } = chosen;
    let asked = request.url().clone();
    let (mut request, loan) = Loan::of(request);
    *request.url_mut() = target.url(&asked);
    if let Some(deadline) = deadline {
        *request.timeout_mut() = Some(deadline.saturating_duration_since(Instant::now()));
    }
    let result = client.execute(request).await;
    // Nobody but the service keeps the client of an instance, so that its connections end with that.
    drop(client);
    match result {
        Ok(response) => {
            service.absences.forget(called.instance().id());
            Attempt::Answered(observe(response, pick, called, asked), loan.back())
        }
        Err(error) => {
            let back = loan.back();
            tracing::debug!(service = %service.name, endpoint = %called.endpoint(), %error, "an attempt failed");
            match back {
                Some(request) if is_unsent(&error) => {
                    let id = called.instance().id().into();
                    let endpoint = Some(called.endpoint().clone());
                    service.unreachable(pick, FailedAttempt { id, endpoint, why: causes(error).into() });
                    Attempt::NotSent(request)
                }
                back => {
                    pick.finish(Outcome::Failure);
                    service.absences.forget(called.instance().id());
                    Attempt::Broken(named(error, target.address(&asked)), back)
                }
            }
        }
    }
}

/// Whether nothing was sent: there was no connection, or the one that was made ended before the request's turn.
fn is_unsent(error: &reqwest::Error) -> bool {
    if error.is_connect() {
        return true;
    }
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The error with the address that was called for its URL.
fn named(error: reqwest::Error, address: Option<Url>) -> reqwest::Error {
    match address {
        Some(address) => error.with_url(address),
        None => error.without_url(),
    }
}
