//! What Redis's answers mean.

use discovery_core::{Error, ErrorKind};
use redis::{ErrorKind as ClientKind, RedisError, ServerErrorKind};

/// Classifies a failure of the client by kind and, where Redis has no code for it, by its message.
pub(crate) fn classify(error: RedisError, operation: &'static str, subject: &str) -> Error {
    let kind = kind_of(&error);
    let advice = advice(kind, &error);
    Error::new(kind, operation, subject, format!("{error}{advice}")).with_source(error)
}

/// What a person can do about it.
fn advice(kind: ErrorKind, error: &RedisError) -> &'static str {
    let says = |text: &str| error.detail().unwrap_or_default().contains(text);
    match kind {
        ErrorKind::Unauthenticated if error.is_io_error() => {
            "; check ca, cert, key and server_name in the registry URL"
        }
        ErrorKind::Unauthenticated => "; check user and password in the registry URL",
        ErrorKind::PermissionDenied if says("'select'") => "; grant the user +select, which the option db needs",
        ErrorKind::PermissionDenied => "; grant the user the commands, keys and channels that the README lists",
        ErrorKind::Exhausted if says("maxmemory") => "; Redis is out of memory: raise maxmemory or free some",
        ErrorKind::Exhausted if says("max number of clients") => {
            "; raise maxclients, or look for clients that nobody needs"
        }
        ErrorKind::InvalidInput if says(NO_DATABASE) => "; check db in the registry URL",
        ErrorKind::InvalidInput if is_unknown(error, "SENTINEL") => {
            "; it is no Sentinel: name the Sentinels, usually on port 26379, or write redis:// for redis+sentinel://"
        }
        ErrorKind::InvalidInput if says(NO_CLUSTER) || is_unknown(error, "CLUSTER") => {
            "; it is no server of a Cluster: write redis:// for redis+cluster://"
        }
        _ if error.kind() == ClientKind::Server(ServerErrorKind::Ask) => {
            "; its slot is being moved to another master, and it is served again once that is over"
        }
        _ => "",
    }
}

/// What Redis says to a database, and to a question about the Cluster, that it does not have.
const NO_DATABASE: &str = "DB index is out of range";
const NO_CLUSTER: &str = "cluster support disabled";

fn is_unknown(error: &RedisError, command: &str) -> bool {
    let message = error.detail().unwrap_or_default();
    message.contains("unknown command") && message.contains(command)
}

/// A redirection where no Cluster was expected.
pub(crate) fn needs_cluster(error: RedisError, operation: &'static str, stem: &str) -> Error {
    let why = "the server is one of a Cluster: write redis+cluster:// for redis://";
    Error::new(ErrorKind::InvalidInput, operation, stem, why).with_source(error)
}

fn kind_of(error: &RedisError) -> ErrorKind {
    let message = error.detail().unwrap_or_default();
    if message.contains(NO_DATABASE)
        || message.contains(NO_CLUSTER)
        || ["SENTINEL", "CLUSTER"].iter().any(|command| is_unknown(error, command))
    {
        return ErrorKind::InvalidInput;
    }
    match error.kind() {
        ClientKind::AuthenticationFailed => ErrorKind::Unauthenticated,
        // What the handshake of TLS says is for a person to mend.
        ClientKind::Io if is_handshake(&error.to_string()) => ErrorKind::Unauthenticated,
        ClientKind::Io | ClientKind::ClusterConnectionNotFound => ErrorKind::Unavailable,
        // The answer was no answer of Redis's: bytes were lost, or something else listens there.
        ClientKind::Parse => ErrorKind::Unavailable,
        ClientKind::InvalidClientConfig => ErrorKind::InvalidInput,
        ClientKind::RESP3NotSupported => ErrorKind::Unsupported,
        ClientKind::Server(server) => match server {
            ServerErrorKind::NoPerm => ErrorKind::PermissionDenied,
            ServerErrorKind::BusyLoading
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain => ErrorKind::Unavailable,
            _ => by_message(message),
        },
        ClientKind::Extension => match error.code().unwrap_or_default() {
            "NOAUTH" | "WRONGPASS" => ErrorKind::Unauthenticated,
            "OOM" => ErrorKind::Exhausted,
            // The disk is full or replicas are missing: writes are refused until that is over.
            "MISCONF" | "NOREPLICAS" => ErrorKind::Exhausted,
            "BUSY" | "UNBLOCKED" => ErrorKind::Unavailable,
            "WRONGTYPE" => ErrorKind::Corrupt,
            _ => by_message(message),
        },
        _ => ErrorKind::Internal,
    }
}

/// Whether a failure of the transport is one of certificates; both sides say so in their own words.
pub(crate) fn is_handshake(message: &str) -> bool {
    ["certificate", "Certificate", "HandshakeFailure", "fatal alert"].iter().any(|word| message.contains(word))
}

/// What a script meets comes as a plain error that quotes it.
fn by_message(message: &str) -> ErrorKind {
    let says = |text: &str| message.contains(text);
    if says("The user executing the script can't") || says("ACL failure in script") || says("has no permissions") {
        ErrorKind::PermissionDenied
    } else if says("OOM command not allowed") {
        ErrorKind::Exhausted
    } else if says("WRONGTYPE") {
        ErrorKind::Corrupt
    } else if says("read only replica") || says("cluster is down") || says("is down") {
        ErrorKind::Unavailable
    } else if says("max number of clients") {
        ErrorKind::Exhausted
    } else {
        ErrorKind::Internal
    }
}

/// What an answer says about who has to be asked instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// Another master has the slot.
    Moved,
    /// This server is no master, or not able to be one now.
    NoMaster,
}

/// Whether an answer says that another server has to be asked. `ASK` and `TRYAGAIN` do not: a slot on its way is still this server's.
pub(crate) fn elsewhere(error: &RedisError) -> Option<Elsewhere> {
    match error.kind() {
        ClientKind::Server(ServerErrorKind::Moved) => Some(Elsewhere::Moved),
        ClientKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown) => {
            Some(Elsewhere::NoMaster)
        }
        _ => error.detail().is_some_and(|message| message.contains("read only replica")).then_some(Elsewhere::NoMaster),
    }
}

/// Whether the server does not know the script, as after a restart or `SCRIPT FLUSH`.
pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ClientKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::make_extension_error;
    use std::io;

    fn server(kind: ServerErrorKind, detail: &str) -> RedisError {
        RedisError::from((ClientKind::Server(kind), "an answer", detail.to_owned()))
    }

    fn extension(code: &str, detail: &str) -> RedisError {
        make_extension_error(code.to_owned(), Some(detail.to_owned()))
    }

    #[test]
    fn every_answer_has_its_kind() {
        let acl =
            "The user executing the script can't run this command or subcommand script: 3a8d, on @user_script:61.";
        for (error, kind, retryable) in [
            (RedisError::from((ClientKind::AuthenticationFailed, "no")), ErrorKind::Unauthenticated, false),
            (extension("NOAUTH", "Authentication required."), ErrorKind::Unauthenticated, false),
            (extension("WRONGPASS", "invalid username-password pair"), ErrorKind::Unauthenticated, false),
            (server(ServerErrorKind::NoPerm, "this user has no permissions"), ErrorKind::PermissionDenied, false),
            (server(ServerErrorKind::ResponseError, acl), ErrorKind::PermissionDenied, false),
            (extension("OOM", "command not allowed when used memory > 'maxmemory'."), ErrorKind::Exhausted, true),
            (extension("MISCONF", "Redis is configured to save RDB snapshots"), ErrorKind::Exhausted, true),
            (server(ServerErrorKind::BusyLoading, "Redis is loading"), ErrorKind::Unavailable, true),
            (server(ServerErrorKind::ReadOnly, "You can't write"), ErrorKind::Unavailable, true),
            (server(ServerErrorKind::MasterDown, "Link with MASTER is down"), ErrorKind::Unavailable, true),
            (server(ServerErrorKind::ClusterDown, "The cluster is down"), ErrorKind::Unavailable, true),
            (server(ServerErrorKind::Moved, "3999 127.0.0.1:6381"), ErrorKind::Unavailable, true),
            (RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe)), ErrorKind::Unavailable, true),
            (
                RedisError::from(io::Error::other("received fatal alert: CertificateRequired")),
                ErrorKind::Unauthenticated,
                false,
            ),
            (server(ServerErrorKind::ResponseError, "DB index is out of range"), ErrorKind::InvalidInput, false),
            (
                server(ServerErrorKind::ResponseError, "this user has no permissions to run the 'select' command"),
                ErrorKind::PermissionDenied,
                false,
            ),
            (
                server(ServerErrorKind::ResponseError, "This instance has cluster support disabled"),
                ErrorKind::InvalidInput,
                false,
            ),
            (
                server(ServerErrorKind::ResponseError, "unknown command 'SENTINEL', with"),
                ErrorKind::InvalidInput,
                false,
            ),
            (server(ServerErrorKind::ResponseError, "unknown command 'EVALSHA', with"), ErrorKind::Internal, false),
            (extension("WRONGTYPE", "Operation against a key"), ErrorKind::Corrupt, false),
            (extension("NEWCODE", "something new"), ErrorKind::Internal, false),
            (server(ServerErrorKind::ResponseError, "something new"), ErrorKind::Internal, false),
            (server(ServerErrorKind::CrossSlot, "Keys don't hash to the same slot"), ErrorKind::Internal, false),
        ] {
            let text = error.to_string();
            let error = classify(error, "read", "pay");
            assert_eq!((error.kind(), error.is_retryable()), (kind, retryable), "{text}");
        }
    }

    #[test]
    fn who_is_not_the_master_is_left() {
        for (kind, expected) in [
            (ServerErrorKind::ReadOnly, Some(Elsewhere::NoMaster)),
            (ServerErrorKind::ClusterDown, Some(Elsewhere::NoMaster)),
            (ServerErrorKind::Moved, Some(Elsewhere::Moved)),
            (ServerErrorKind::Ask, None),
            (ServerErrorKind::TryAgain, None),
            (ServerErrorKind::BusyLoading, None),
        ] {
            assert_eq!(elsewhere(&server(kind, "x")), expected, "{kind:?}");
        }
        assert!(is_unknown_script(&server(ServerErrorKind::NoScript, "x")));
    }
}
