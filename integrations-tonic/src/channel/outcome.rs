//! How a call ended, and the response body that finds out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use discovery_core::{Outcome, Pick};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::body::Body;
use tonic::{Code, Status};

use super::retries::Retries;
use super::stream::Answer;
use super::target::Target;

/// Whose fault a code is. It is the classification of Linkerd and of most circuit breakers: what an overloaded, broken or stuck
/// instance answers is a failure, and what the application means to say is not.
pub(super) fn of_code(code: Code) -> Outcome {
    match code {
        Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => Outcome::Failure,
        // Whoever cancelled, it says nothing about the instance.
        Code::Cancelled => Outcome::Cancelled,
        _ => Outcome::Success,
    }
}

/// The status in trailers, or in the headers of a response that has nothing else.
pub(super) fn code_in(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|status| Code::from_bytes(status.as_bytes()))
}

/// What a response says before its body: its status, or that of a proxy which speaks no gRPC, by gRPC's "HTTP to gRPC Status Code Mapping".
pub(super) fn code_of<B>(response: &Response<B>) -> Code {
    code_in(response.headers()).unwrap_or_else(|| match response.status().as_u16() {
        200 => Code::Ok,
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        _ => Code::Unknown,
    })
}

fn of_headers(headers: &HeaderMap) -> Option<Outcome> {
    code_in(headers).map(of_code)
}

/// Who was called, for a status: the address, the service, and how many others there are.
pub(super) fn whom(target: &Target, known: usize) -> String {
    format!("{} ({:?}, {known} known)", target.endpoint.authority(), target.service)
}

pub(super) fn too_late(whom: &str) -> Status {
    Status::deadline_exceeded(format!("no answer from {whom} within the deadline"))
}

/// What is done at the end of an answer.
pub(super) struct Observer {
    pub(super) pick: Option<Pick>,
    pub(super) target: Arc<Target>,
    /// How many instances there were when it was sent.
    pub(super) known: usize,
    /// Whose budget a success fills.
    pub(super) retries: Option<Arc<Retries>>,
    /// The caller's, which is for all of the answer.
    pub(super) deadline: Option<Instant>,
}

/// Hands the pick over to the response's body, or finishes it if the headers say it all.
pub(super) fn observe(response: Response<Answer>, observer: Observer) -> Response<Body> {
    let (head, body) = response.into_parts();
    let known = of_headers(&head.headers).or_else(|| {
        // No gRPC answer at all, or one that ends without a status.
        (head.status != StatusCode::OK || http_body::Body::is_end_stream(&body)).then_some(Outcome::Failure)
    });
    let mut observed = Observed { body: None, observer, alarm: None };
    if let Some(outcome) = known {
        observed.finish(outcome);
    }
    observed.body = Some(body);
    Response::from_parts(head, Body::new(observed))
}

/// A response body that finishes its pick at the trailers. Dropped before, the pick counts as cancelled.
struct Observed {
    /// `None` after its end, so that whoever keeps an exhausted response does not keep the connection of a gone instance open.
    body: Option<Answer>,
    observer: Observer,
    /// Rings at the deadline. Set once the body is waited for: most are there with their headers.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Observed {
    fn finish(&mut self, outcome: Outcome) {
        self.body = None;
        if let Some(pick) = self.observer.pick.take() {
            pick.finish(outcome);
            if let (Outcome::Success, Some(retries)) = (outcome, &self.observer.retries) {
                retries.succeeded();
            }
        }
    }

    fn is_too_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.observer.deadline else {
            return false;
        };
        self.alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline))).as_mut().poll(cx).is_ready()
    }

    fn whom(&self) -> String {
        whom(&self.observer.target, self.observer.known)
    }
}

impl http_body::Body for Observed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let Poll::Ready(polled) = Pin::new(&mut *body).poll_frame(cx) else {
            if !self.is_too_late(cx) {
                return Poll::Pending;
            }
            self.finish(Outcome::Failure);
            return Poll::Ready(Some(Err(too_late(&self.whom()))));
        };
        Poll::Ready(match polled {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.finish(of_headers(trailers).unwrap_or(Outcome::Failure));
                } else if http_body::Body::is_end_stream(body) {
                    // It ends with data, so no status will follow, and whoever asks for the end will not poll again.
                    self.finish(Outcome::Failure);
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                let status = super::call::broken(&self.whom(), error);
                self.finish(of_code(status.code()));
                Some(Err(status))
            }
            None => {
                self.finish(Outcome::Failure);
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p08_every_code_has_an_outcome() {
        let outcomes: Vec<_> = (0..17).map(|code| of_code(Code::from_i32(code))).collect();
        for (code, outcome) in outcomes.into_iter().enumerate() {
            let expected = match code {
                1 => Outcome::Cancelled,
                2 | 4 | 8 | 13 | 14 | 15 => Outcome::Failure,
                _ => Outcome::Success,
            };
            assert_eq!(outcome, expected, "code {code}");
        }
    }
}
