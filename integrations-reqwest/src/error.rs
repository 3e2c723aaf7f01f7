//! Why a request could not be given to an instance.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use discovery_core::{Endpoint, ErrorKind, Freshness};

/// Why a request could not be given to any instance of its service. Nothing of it was sent, unless [`was_sent`](Self::was_sent) says so.
///
/// It comes as the middleware error of a [`reqwest_middleware::Error`]; [`CallError::of`] finds it there. A request that was sent and then
/// broke or ran out of time is a `reqwest::Error` as ever, so that `is_timeout` and the like answer, and its URL is the address that was
/// called.
#[derive(Debug, Clone)]
pub struct CallError(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    service: Arc<str>,
    why: String,
    known: Option<(usize, Freshness)>,
    attempt: Option<FailedAttempt>,
    waited: Option<Duration>,
    was_sent: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The last attempt to reach an instance.
#[derive(Debug, Clone)]
pub(crate) struct FailedAttempt {
    pub(crate) id: Arc<str>,
    /// `None` if the instance has no address that can be called.
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) why: Arc<str>,
}

impl CallError {
    pub(crate) fn new(kind: ErrorKind, service: &Arc<str>, why: impl Into<String>) -> Self {
        let (service, why) = (service.clone(), why.into());
        let (known, attempt, waited, source) = (None, None, None, None);
        Self(Box::new(Inner { kind, service, why, known, attempt, waited, was_sent: false, source }))
    }

    pub(crate) fn with_set(mut self, known: usize, freshness: Freshness) -> Self {
        self.0.known = Some((known, freshness));
        self
    }

    pub(crate) fn with_attempt(mut self, attempt: Option<FailedAttempt>) -> Self {
        self.0.attempt = attempt;
        self
    }

    pub(crate) fn with_waited(mut self, waited: Duration) -> Self {
        self.0.waited = Some(waited);
        self
    }

    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    pub(crate) fn with_sent(mut self) -> Self {
        self.0.was_sent = true;
        self
    }

    /// Finds it in what a client with middlewares answers, also below another middleware's error that names it as its source. The
    /// `RetryError::Error` of reqwest-retry does not; look into the error that it holds.
    pub fn of(error: &reqwest_middleware::Error) -> Option<&Self> {
        let reqwest_middleware::Error::Middleware(error) = error else {
            return None;
        };
        // A transparent error is skipped by the chain, so it is looked into.
        error.chain().find_map(|cause| cause.downcast_ref().or_else(|| Self::of(cause.downcast_ref()?)))
    }

    /// What happened: `NoInstance` if nobody is there, `Unavailable` if nobody could be reached, `InvalidInput` for a URL or options that
    /// can never work, `Closed` if the backend was closed.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same request can succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.kind, ErrorKind::NoInstance | ErrorKind::Unavailable)
    }

    /// Whether the request was sent to another instance before, which answered with a redirect here. Otherwise nothing of it was sent.
    pub fn was_sent(&self) -> bool {
        self.0.was_sent
    }

    /// The service.
    pub fn service(&self) -> &str {
        &self.0.service
    }

    /// How many instances were known; `None` if the request came to no set.
    pub fn known(&self) -> Option<usize> {
        self.0.known.as_ref().map(|(known, _)| *known)
    }

    /// How far the set could be trusted; `None` if the request came to no set.
    pub fn freshness(&self) -> Option<&Freshness> {
        self.0.known.as_ref().map(|(_, freshness)| freshness)
    }

    /// The address that was tried last, by this request or another one of the same client.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.0.attempt.as_ref()?.endpoint.as_ref()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, service, why, attempt, waited, was_sent, .. } = &*self.0;
        write!(f, "cannot call {service:?}: {kind}: {why}")?;
        if let Some(FailedAttempt { id, endpoint, why }) = attempt {
            match endpoint {
                Some(endpoint) => write!(f, "; the last attempt was at {endpoint}: {why}")?,
                None => write!(f, "; the last attempt was at {id}: {why}")?,
            }
        }
        if let Some(waited) = waited {
            write!(f, "; waited {waited:?}")?;
        }
        if *was_sent { f.write_str("; it was sent before, and redirected") } else { Ok(()) }
    }
}

impl StdError for CallError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

/// An error with its causes in one line. Take the URL out of it before, which may hold a secret.
pub(crate) fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_everything_that_is_known() {
        let error = CallError::new(
            ErrorKind::Unavailable,
            &"orders".into(),
            "3 known, nobody could be reached; the set is live",
        )
        .with_set(3, Freshness::Live)
        .with_attempt(Some(FailedAttempt {
            id: "a".into(),
            endpoint: Some("http://10.0.0.5:9000".parse().unwrap()),
            why: "connection refused".into(),
        }))
        .with_waited(Duration::from_secs(1));
        let sent = error.clone().with_sent();
        let expected = "cannot call \"orders\": unavailable: 3 known, nobody could be reached; the set is live; \
            the last attempt was at http://10.0.0.5:9000: connection refused; waited 1s";
        assert_eq!(error.to_string(), expected);
        assert_eq!((error.known(), error.is_retryable(), error.was_sent()), (Some(3), true, false));
        assert_eq!(
            (sent.to_string(), sent.was_sent()),
            (format!("{expected}; it was sent before, and redirected"), true)
        );
    }

    #[test]
    fn it_is_found_below_other_middlewares() {
        let error = || reqwest_middleware::Error::middleware(CallError::new(ErrorKind::Closed, &"orders".into(), "x"));
        assert_eq!(CallError::of(&error()).unwrap().service(), "orders");
        let retried = reqwest_retry::RetryError::WithRetries { retries: 1, err: error() };
        let nested = reqwest_middleware::Error::middleware(retried);
        assert_eq!(CallError::of(&nested).unwrap().kind(), ErrorKind::Closed);
    }
}
