//! What ZooKeeper's answers mean.

use discovery_core::{Error, ErrorKind};
use zookeeper_client::{Error as ClientError, SessionState};

/// Classifies a failure of a request on an open session.
pub(crate) fn classify(error: ClientError, operation: &'static str, subject: &str) -> Error {
    let kind = kind_of(&error);
    let advice = match kind {
        // ZooKeeper takes any password: a wrong one is another identity, and shows as missing rights.
        ErrorKind::PermissionDenied => {
            "; check user and password in the registry URL, and the rights (ACL) of the node"
        }
        ErrorKind::Unauthenticated => "; check user and password in the registry URL",
        // The session was opened on a newer server than the one that it is on now.
        ErrorKind::Unsupported => {
            "; if the servers are not all of one version, name the oldest one in the registry URL, as in ?oldest=3.5"
        }
        ErrorKind::Exhausted => "; raise the quota of the path",
        _ => "",
    };
    Error::new(kind, operation, subject, format!("{error}{advice}")).with_source(error)
}

/// Classifies a failure to open a session. The client tries every host and keeps what each said to itself.
pub(crate) fn classify_opening(error: ClientError, address: &str) -> Error {
    match error {
        ClientError::NoHosts | ClientError::Timeout => {
            Error::new(ErrorKind::Unavailable, "connect to", address, "no host has opened a session").with_source(error)
        }
        // Nothing was sent yet: the client refused its own configuration.
        ClientError::Custom(_) => {
            Error::new(ErrorKind::InvalidInput, "connect to", address, error.to_string()).with_source(error)
        }
        error => classify(error, "connect to", address),
    }
}

/// What a session says that cannot be used at the moment.
pub(crate) fn of_state(state: SessionState, address: &str) -> Error {
    let kind = match state {
        SessionState::AuthFailed => ErrorKind::Unauthenticated,
        _ => ErrorKind::Unavailable,
    };
    let why = match state {
        SessionState::AuthFailed => "the server refused the credentials; check user and password in the registry URL",
        SessionState::Expired => "the session has expired",
        SessionState::Closed => "the session was closed",
        _ => "the connection was lost",
    };
    Error::new(kind, "reach", address, why)
}

fn kind_of(error: &ClientError) -> ErrorKind {
    match error {
        ClientError::ConnectionLoss
        | ClientError::SessionExpired
        | ClientError::SessionMoved
        | ClientError::ClientClosed
        | ClientError::NoHosts
        | ClientError::NotReadOnly
        | ClientError::Throttled => ErrorKind::Unavailable,
        // On an open session the client makes these of nothing but failures of the connection. The session's state would not tell: it
        // may be connected again by now.
        ClientError::Custom(_) => ErrorKind::Unavailable,
        ClientError::Timeout => ErrorKind::DeadlineExceeded,
        // Somebody else changed the node between two steps of ours; the next try sees what it is now.
        ClientError::NoNode | ClientError::NodeExists | ClientError::NotEmpty | ClientError::BadVersion => {
            ErrorKind::Unavailable
        }
        ClientError::NoAuth => ErrorKind::PermissionDenied,
        ClientError::AuthFailed => ErrorKind::Unauthenticated,
        ClientError::BadArguments(_) | ClientError::InvalidAcl | ClientError::NoChildrenForEphemerals => {
            ErrorKind::InvalidInput
        }
        ClientError::QuotaExceeded => ErrorKind::Exhausted,
        ClientError::Unimplemented => ErrorKind::Unsupported,
        _ => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_kind() {
        for (error, kind, retryable) in [
            (ClientError::ConnectionLoss, ErrorKind::Unavailable, true),
            (ClientError::SessionExpired, ErrorKind::Unavailable, true),
            (ClientError::SessionMoved, ErrorKind::Unavailable, true),
            (ClientError::ClientClosed, ErrorKind::Unavailable, true),
            (ClientError::Throttled, ErrorKind::Unavailable, true),
            (ClientError::Timeout, ErrorKind::DeadlineExceeded, true),
            (ClientError::NoNode, ErrorKind::Unavailable, true),
            (ClientError::BadVersion, ErrorKind::Unavailable, true),
            (ClientError::NoAuth, ErrorKind::PermissionDenied, false),
            (ClientError::AuthFailed, ErrorKind::Unauthenticated, false),
            (ClientError::InvalidAcl, ErrorKind::InvalidInput, false),
            (ClientError::NoChildrenForEphemerals, ErrorKind::InvalidInput, false),
            (ClientError::BadArguments(&"a path"), ErrorKind::InvalidInput, false),
            (ClientError::QuotaExceeded, ErrorKind::Exhausted, true),
            (ClientError::Unimplemented, ErrorKind::Unsupported, false),
            (ClientError::UnexpectedErrorCode(-7), ErrorKind::Internal, false),
            (ClientError::UnexpectedError("new".to_owned()), ErrorKind::Internal, false),
            (ClientError::MarshallingError, ErrorKind::Internal, false),
        ] {
            let classified = classify(error.clone(), "read", "/discovery/pay");
            assert_eq!((classified.kind(), classified.is_retryable()), (kind, retryable), "{error}");
        }
        assert_eq!(classify_opening(ClientError::NoHosts, "zookeeper://h").kind(), ErrorKind::Unavailable);
        assert_eq!(classify_opening(ClientError::AuthFailed, "zookeeper://h").kind(), ErrorKind::Unauthenticated);
        assert_eq!(of_state(SessionState::AuthFailed, "zookeeper://h").kind(), ErrorKind::Unauthenticated);
        assert_eq!(of_state(SessionState::Disconnected, "zookeeper://h").kind(), ErrorKind::Unavailable);
    }
}
