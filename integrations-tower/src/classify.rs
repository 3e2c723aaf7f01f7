//! What a layer has to be told about a protocol.

use discovery_core::{Context, Outcome};

/// Says what a request asks for, and how it ended.
///
/// A function of the result is one; whoever has to say more about requests implements it.
pub trait Classify<Request, Response, Error> {
    /// What the picker may know about the request, such as the key of consistent hashing; nothing by default.
    fn context<'a>(&self, request: &'a Request) -> Context<'a> {
        let _ = request;
        Context::default()
    }

    /// What the result says about the instance. Say [`Outcome::Unreachable`] where no connection was made, so that the next picks go
    /// elsewhere.
    fn outcome(&self, result: Result<&Response, &Error>) -> Outcome;
}

/// A response is a success, an error a failure.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByResult;

impl<Request, Response, Error> Classify<Request, Response, Error> for ByResult {
    fn outcome(&self, result: Result<&Response, &Error>) -> Outcome {
        result.map_or(Outcome::Failure, |_| Outcome::Success)
    }
}

impl<F, Request, Response, Error> Classify<Request, Response, Error> for F
where
    F: Fn(Result<&Response, &Error>) -> Outcome,
{
    fn outcome(&self, result: Result<&Response, &Error>) -> Outcome {
        self(result)
    }
}
