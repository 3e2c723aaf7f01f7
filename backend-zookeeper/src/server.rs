//! What the server can do, by its version.
//!
//! An old server answers a request that it does not know by closing the connection; the session survives. So what is not known is not
//! tried, and the one question that has to be tried is asked before anything hangs on the session.

use zookeeper_client::{Client, Connector, Error as ClientError};

/// Where servers keep the ensemble's configuration since 3.5. Whether it is there may be asked without any right.
const CONFIGURATION: &str = "/zookeeper/config";

/// The version that requests are made for, as far as versions differ here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Server {
    V3_4,
    V3_5,
    V3_6,
}

impl Server {
    /// The version that an option names; patch levels are no matter, and newer ones can do what 3.6 can.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return None };
        match (major, minor) {
            _ if numbers.any(|number| number.is_err()) => None,
            (3, 4) => Some(Self::V3_4),
            (3, 5) => Some(Self::V3_5),
            (3, 6..) | (4.., _) => Some(Self::V3_6),
            _ => None,
        }
    }

    /// Finds out the version. It costs two answers; from a server of 3.5 also the connection, which the client brings back.
    pub(crate) async fn of(client: &Client, root: &str) -> Result<Self, ClientError> {
        // A server that was upgraded from 3.4 may have no such node yet. It can do what is taken for all that it can.
        if client.check_stat(CONFIGURATION).await?.is_none() {
            return Ok(Self::V3_4);
        }
        match client.list_ephemerals(root).await {
            Ok(_) => Ok(Self::V3_6),
            Err(ClientError::Unimplemented) => Ok(Self::V3_5),
            Err(error) => Err(error),
        }
    }

    /// Makes the client send what the server knows, and expect what it answers.
    pub(crate) fn prepare(self, connector: Connector) -> Connector {
        match self {
            Self::V3_4 => connector.with_server_version(3, 4, 0),
            Self::V3_5 | Self::V3_6 => connector,
        }
    }

    /// Whether a client that was made for another version is one for this, too.
    pub(crate) fn suits(self, other: Self) -> bool {
        self.describes_created() == other.describes_created()
    }

    /// Whether one watch can cover all that lies under a node.
    pub(crate) fn watches_recursively(self) -> bool {
        self >= Self::V3_6
    }

    /// Whether a session can be asked for its own nodes.
    pub(crate) fn lists_ephemerals(self) -> bool {
        self >= Self::V3_6
    }

    /// Whether many nodes can be read by one request.
    pub(crate) fn reads_many(self) -> bool {
        self >= Self::V3_6
    }

    /// Whether there are nodes that go when they are empty. The first releases of 3.5 lack them.
    pub(crate) fn has_containers(self) -> bool {
        self >= Self::V3_5
    }

    /// Whether the answer to a creation says more than the path.
    pub(crate) fn describes_created(self) -> bool {
        self >= Self::V3_5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_apart() {
        for (text, server) in [
            ("3.4", Some(Server::V3_4)),
            ("3.4.14", Some(Server::V3_4)),
            ("3.5.10", Some(Server::V3_5)),
            ("3.6", Some(Server::V3_6)),
            ("3.9.2", Some(Server::V3_6)),
            ("4.0", Some(Server::V3_6)),
            ("3.3", None),
            ("3", None),
            ("", None),
            ("3.5.x", None),
            ("new", None),
        ] {
            assert_eq!(Server::parse(text), server, "{text}");
        }
        assert!(!Server::V3_5.watches_recursively() && Server::V3_5.has_containers());
    }
}
