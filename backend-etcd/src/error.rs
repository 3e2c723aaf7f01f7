//! What etcd's answers mean.

use discovery_core::{Error, ErrorKind};
use etcd_client::Error as ClientError;
use tonic::{Code, Status};

/// Classifies a failure of the client by variant, code and, where etcd uses one code for many things, its message.
pub(crate) fn classify(error: ClientError, operation: &'static str, subject: &str) -> Error {
    let (kind, message) = match &error {
        ClientError::GRpcStatus(status) => (kind_of(status), status.message().to_owned()),
        ClientError::TransportError(_) | ClientError::IoError(_) => (ErrorKind::Unavailable, error.to_string()),
        ClientError::WatchError(_) | ClientError::LeaseKeepAliveError(_) => (ErrorKind::Unavailable, error.to_string()),
        ClientError::InvalidArgs(_) | ClientError::InvalidUri(_) => (ErrorKind::InvalidInput, error.to_string()),
        _ => (ErrorKind::Internal, error.to_string()),
    };
    let (kind, message) = match root_cause(&error) {
        // What the transport says hides why; what the handshake says is for a person to mend.
        Some(cause) if kind == ErrorKind::Unavailable && is_handshake(&cause) => (
            ErrorKind::Unauthenticated,
            format!("{message}: {cause}; check ca, cert, key and server_name in the registry URL"),
        ),
        Some(cause) if kind == ErrorKind::Unavailable => (kind, format!("{message}: {cause}")),
        _ => (kind, message),
    };
    let advice = match kind {
        ErrorKind::Unauthenticated if !message.contains("registry URL") => {
            "; check user and password in the registry URL"
        }
        ErrorKind::PermissionDenied => "; grant the user's role readwrite on the prefix",
        ErrorKind::Exhausted => "; etcd is out of space: compact, defragment and disarm the alarm",
        _ => "",
    };
    Error::new(kind, operation, subject, format!("{message}{advice}")).with_source(error)
}

/// The innermost source of an error that was made on this side.
fn root_cause(error: &ClientError) -> Option<String> {
    let mut source = match error {
        ClientError::GRpcStatus(status) => std::error::Error::source(status),
        ClientError::TransportError(transport) => std::error::Error::source(transport),
        _ => None,
    }?;
    while let Some(inner) = source.source() {
        source = inner;
    }
    Some(source.to_string())
}

fn is_handshake(cause: &str) -> bool {
    ["certificate", "Certificate", "handshake", "HandshakeFailure", "fatal alert", "private key", "KeyMismatch"]
        .iter()
        .any(|word| cause.contains(word))
}

fn kind_of(status: &Status) -> ErrorKind {
    let message = status.message();
    match status.code() {
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::PermissionDenied => ErrorKind::PermissionDenied,
        Code::ResourceExhausted if message.contains("too large") || message.contains("larger than max") => {
            ErrorKind::TooLarge
        }
        Code::ResourceExhausted => ErrorKind::Exhausted,
        Code::OutOfRange if message.contains("compacted") || message.contains("future revision") => ErrorKind::Gap,
        Code::InvalidArgument if message.contains("too large") => ErrorKind::TooLarge,
        // What a wrong password, an unknown user and a stale token are called differs between releases.
        Code::InvalidArgument if message.contains("authentication failed") || message.contains("user name") => {
            ErrorKind::Unauthenticated
        }
        Code::FailedPrecondition if message.contains("authentication is not enabled") => ErrorKind::Unauthenticated,
        Code::InvalidArgument => ErrorKind::InvalidInput,
        Code::Unimplemented => ErrorKind::Unsupported,
        Code::Unavailable | Code::Aborted | Code::Cancelled => ErrorKind::Unavailable,
        Code::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        // A status with a source was made by the transport on this side, not by the server.
        _ if std::error::Error::source(status).is_some() => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    }
}

/// Whether a failed write or lookup says that its lease is gone.
pub(crate) fn is_lease_lost(error: &ClientError) -> bool {
    match error {
        ClientError::GRpcStatus(status) => {
            status.code() == Code::NotFound && status.message().contains("lease not found")
        }
        ClientError::LeaseKeepAliveError(message) => message.contains("lease not found"),
        _ => false,
    }
}

/// Whether an answer was larger than this side decodes.
pub(crate) fn is_answer_too_large(error: &ClientError) -> bool {
    matches!(error, ClientError::GRpcStatus(status)
        if status.code() == Code::OutOfRange && status.message().contains("decoded message length too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_kind() {
        for (code, message, kind, retryable) in [
            (Code::Unauthenticated, "etcdserver: invalid auth token", ErrorKind::Unauthenticated, false),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                ErrorKind::Unauthenticated,
                false,
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", ErrorKind::Unauthenticated, false),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", ErrorKind::Unauthenticated, false),
            (Code::PermissionDenied, "etcdserver: permission denied", ErrorKind::PermissionDenied, false),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", ErrorKind::Exhausted, true),
            (Code::InvalidArgument, "etcdserver: request is too large", ErrorKind::TooLarge, false),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", ErrorKind::Gap, true),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", ErrorKind::Gap, true),
            (Code::Unavailable, "etcdserver: no leader", ErrorKind::Unavailable, true),
            (Code::DeadlineExceeded, "context deadline exceeded", ErrorKind::DeadlineExceeded, true),
            (Code::Unknown, "something new", ErrorKind::Internal, false),
            (Code::NotFound, "etcdserver: something new", ErrorKind::Internal, false),
        ] {
            let error = classify(ClientError::GRpcStatus(Status::new(code, message)), "read", "pay");
            assert_eq!((error.kind(), error.is_retryable()), (kind, retryable), "{code:?} {message}");
        }
        let lost = ClientError::GRpcStatus(Status::not_found("etcdserver: requested lease not found"));
        assert!(is_lease_lost(&lost));
    }
}
