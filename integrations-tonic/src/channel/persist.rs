//! A call that may be made again: after a failure, or beside an attempt that takes long.

use discovery_core::attempts::Hedge;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request};
use tokio::time::{Instant, sleep};
use tonic::Code;
use tonic::body::Body;

use super::call::{Answer, Attempted, Call};
use super::claim::Trace;
use super::outcome;
use super::replay::Replay;
use super::retries::{PREVIOUS, Retries};

/// Attempts the call until one succeeds, or the policy, the budget, the deadline or the request's size ends it.
pub(super) async fn call(call: &Call<'_>, retries: &Retries, request: Request<Body>) -> Answer {
    let (mut head, body) = request.into_parts();
    let replay = Replay::new(body, retries.buffer);
    let mut avoid = None;
    let mut failed = 0;
    let mut before = None;
    loop {
        let Some(body) = replay.attempt() else {
            // It was too large to be kept, which only shows after the first attempt.
            return before.unwrap_or_else(|| Err(tonic::Status::internal("the request's body is gone")));
        };
        let trace = Trace::avoiding(avoid);
        let Attempted { answer, was_sent } = beside(call, retries, &head, body, &replay, &trace).await;
        failed += 1;
        let none = HeaderMap::new();
        let (code, headers) = match &answer {
            Ok(response) => (outcome::code_of(response), response.headers()),
            Err(status) => (status.code(), &none),
        };
        let wait = if was_sent && replay.is_kept() { retries.wait_after(failed, code, headers) } else { None };
        match wait {
            Some(wait) if call.has_time_for(wait) => sleep(wait).await,
            _ => return answer,
        }
        before = Some(answer);
        avoid = trace.to();
        head.headers.insert(PREVIOUS, HeaderValue::from(failed));
    }
}

/// One attempt, and a second one beside it if that takes longer than nearly all do.
async fn beside(
    call: &Call<'_>,
    retries: &Retries,
    head: &Parts,
    body: Body,
    replay: &Replay,
    trace: &Trace,
) -> Attempted {
    let begun = Instant::now();
    let mut request = Request::from_parts(head.clone(), body);
    let first = call.attempt(&mut request, trace);
    let Some(hedge) = &retries.hedge else {
        return first.await;
    };
    tokio::pin!(first);
    if let Some(delay) = hedge.delay() {
        tokio::select! {
            biased;
            attempted = &mut first => {
                return record(hedge, begun, attempted);
            }
            // Only what has been read to its end can be sent by two at once.
            () = async { sleep(delay).await; replay.completed().await } => {}
        }
        if hedge.permits()
            && let Some(body) = replay.attempt()
        {
            let second = Trace::avoiding(trace.to());
            let mut request = Request::from_parts(head.clone(), body);
            request.headers_mut().insert(PREVIOUS, HeaderValue::from(1));
            let attempted = race(call, first, trace, &mut request, &second).await;
            return record(hedge, begun, attempted);
        }
    }
    record(hedge, begun, first.await)
}

/// A call that found nobody says nothing about how long an answer takes.
fn record(hedge: &Hedge, begun: Instant, attempted: Attempted) -> Attempted {
    if attempted.was_sent {
        hedge.record(begun.elapsed());
    }
    attempted
}

/// The first of two that succeeds, or the last that fails.
async fn race(
    call: &Call<'_>,
    mut first: std::pin::Pin<&mut impl Future<Output = Attempted>>,
    trace: &Trace,
    request: &mut Request<Body>,
    second_trace: &Trace,
) -> Attempted {
    let second = call.attempt(request, second_trace);
    tokio::pin!(second);
    tokio::select! {
        biased;
        attempted = &mut first => if is_good(&attempted) { attempted } else { second.await },
        attempted = &mut second => {
            if is_good(&attempted) {
                trace.beat();
                attempted
            } else {
                first.await
            }
        }
    }
}

fn is_good(attempted: &Attempted) -> bool {
    attempted.answer.as_ref().is_ok_and(|response| outcome::code_of(response) == Code::Ok)
}
