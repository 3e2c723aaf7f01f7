//! The one error type: what happened, and whether trying again can help.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What happened, independent of the store it happened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input can never work: a malformed URL, name, host, weight or TTL.
    InvalidInput,
    /// The record exceeds what the store accepts.
    TooLarge,
    /// The backend cannot do this at all.
    Unsupported,
    /// The store refused the credentials.
    Unauthenticated,
    /// The store knows us and refuses this operation.
    PermissionDenied,
    /// The store cannot be reached or cannot answer now.
    Unavailable,
    /// The deadline passed; the outcome at the store is unknown.
    DeadlineExceeded,
    /// The store is out of space or quota.
    Exhausted,
    /// A newer owner registered the same instance id.
    Superseded,
    /// The handle or its backend was closed.
    Closed,
    /// No instance may be picked.
    NoInstance,
    /// A record in the store cannot be read.
    Corrupt,
    /// The notifications of a watch have a gap; the set has to be read anew.
    Gap,
    /// The store answered something that nobody foresaw.
    Internal,
}

impl ErrorKind {
    const fn default_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::DeadlineExceeded | Self::Exhausted | Self::NoInstance | Self::Gap)
    }

    const fn text(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid input",
            Self::TooLarge => "too large",
            Self::Unsupported => "unsupported",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission denied",
            Self::Unavailable => "unavailable",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::Exhausted => "exhausted",
            Self::Superseded => "superseded",
            Self::Closed => "closed",
            Self::NoInstance => "no instance",
            Self::Corrupt => "unreadable record",
            Self::Gap => "gap in notifications",
            Self::Internal => "unexpected answer",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that says what was tried, on what, and what to do about it.
///
/// It is cheap to clone, so that one failure can be reported to everyone it concerns.
/// It never holds a credential: constructors take texts that the caller has redacted.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    retryable: bool,
    operation: &'static str,
    subject: String,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Says that `operation` on `subject` failed, and why.
    ///
    /// `operation` is a verb in the imperative ("register", "read"), `subject` names the service, key or address.
    pub fn new(
        kind: ErrorKind,
        operation: &'static str,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self(Arc::new(Inner {
            kind,
            retryable: kind.default_retryable(),
            operation,
            subject: subject.into(),
            message: message.into(),
            source: None,
        }))
    }

    /// Attaches the client library's error as the source.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let retryable = self.0.retryable;
        Self(Arc::new(Inner {
            kind: self.0.kind,
            retryable,
            operation: self.0.operation,
            subject: self.0.subject.clone(),
            message: self.0.message.clone(),
            source: Some(source.into()),
        }))
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call can succeed later without anybody changing the call or its rights.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// What was tried.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// What it was tried on.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// Why it failed, and what to do.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn invalid(operation: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, operation, subject, message)
    }

    pub(crate) fn closed(operation: &'static str, subject: impl Into<String>) -> Self {
        Self::new(ErrorKind::Closed, operation, subject, "the backend was closed; connect again to use it")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, operation, subject, message, .. } = &*self.0;
        write!(f, "cannot {operation} {subject}: {kind}: {message}")
    }
}

/// Reads as `Display` does, followed by the causes, since this is what a `main` that returns the error prints; `{:#?}` shows the fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f
                .debug_struct("Error")
                .field("kind", &self.0.kind)
                .field("retryable", &self.0.retryable)
                .field("operation", &self.0.operation)
                .field("subject", &self.0.subject)
                .field("message", &self.0.message)
                .field("source", &self.0.source)
                .finish();
        }
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(cause) = source {
            write!(f, "; caused by: {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|s| &**s as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_operation_subject_kind_and_reason() {
        let error = Error::new(ErrorKind::Unavailable, "register", "pay/1", "connection refused").with_source("io");
        assert_eq!(error.to_string(), "cannot register pay/1: unavailable: connection refused");
        assert!(error.is_retryable());
        assert!(error.source().is_some());
    }

    #[test]
    fn what_nobody_foresaw_is_never_called_temporary() {
        let error = Error::new(ErrorKind::Internal, "read", "pay", "?");
        assert!(!error.is_retryable());
    }
}
