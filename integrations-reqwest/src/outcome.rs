//! How an attempt ended, and the response body that finds out.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use discovery_core::{Outcome, Pick};
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};
use reqwest::{Body, Response, ResponseBuilderExt, Url};

use crate::called::Called;

/// What a whole response means: the instance's own errors are failures, and what it has to say about the request is its work done.
pub(crate) fn of_status(status: StatusCode) -> Outcome {
    if status.is_server_error() { Outcome::Failure } else { Outcome::Success }
}

/// What a response means whose body nobody reads: the status of an error or a redirect says it all, and nearly everybody drops such a one.
pub(crate) fn of_unread(status: StatusCode) -> Outcome {
    let says_it_all = status.is_server_error() || status.is_redirection();
    if says_it_all { of_status(status) } else { Outcome::Cancelled }
}

/// Hands the pick over to the response's body, unless it was finished already, and makes the response one to the URL that the user asked for.
pub(crate) fn observe(response: Response, pick: Option<Pick>, called: Called, asked: Url) -> Response {
    let (outcome, unread) = (of_status(response.status()), of_unread(response.status()));
    let (mut head, body) = http::Response::<Body>::from(response).into_parts();
    // The only way to give a response its URL leads through a builder of such an extension.
    let mut named = http::Response::builder();
    if let Some(extensions) = named.extensions_mut() {
        std::mem::swap(extensions, &mut head.extensions);
    }
    if let Ok(named) = named.url(asked).body(()) {
        head.extensions = named.into_parts().0.extensions;
    }
    head.extensions.insert(called);
    let mut observed = Observed { body: Some(body), outcome, unread, pick };
    if observed.is_end_stream() {
        observed.finish(outcome);
    }
    http::Response::from_parts(head, Body::wrap(observed)).into()
}

/// A response body that finishes its pick at its end.
struct Observed {
    /// `None` after its end, so that whoever keeps an exhausted response does not keep the connection of a gone instance open.
    body: Option<Body>,
    /// What it means if it comes whole.
    outcome: Outcome,
    /// What it means if it is dropped unread.
    unread: Outcome,
    pick: Option<Pick>,
}

impl Observed {
    fn finish(&mut self, outcome: Outcome) {
        self.body = None;
        if let Some(pick) = self.pick.take() {
            pick.finish(outcome);
        }
    }
}

impl http_body::Body for Observed {
    type Data = <Body as http_body::Body>::Data;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        let outcome = self.outcome;
        match &frame {
            // Whoever asks for the end first will not poll again.
            Some(Ok(_)) if !self.is_end_stream() => {}
            Some(Ok(_)) | None => self.finish(outcome),
            Some(Err(_)) => self.finish(Outcome::Failure),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.finish(self.unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p08_only_the_instances_own_errors_are_failures() {
        for status in 100..600 {
            let outcome = of_status(StatusCode::from_u16(status).unwrap());
            assert_eq!(outcome == Outcome::Failure, status >= 500, "{status}");
            assert!(matches!(outcome, Outcome::Failure | Outcome::Success));
        }
    }
}
