//! A connection for one check.

use std::error::Error as StdError;

use discovery_core::{Endpoint, ErrorKind, Result};
use tokio::net::TcpStream;

use crate::check::failure;

/// What the checks call themselves in logs of servers.
pub(crate) const USER_AGENT: &str = concat!("discovery-health/", env!("CARGO_PKG_VERSION"));

/// Connects; the checker's timeout is the deadline.
pub(crate) async fn dial(endpoint: &Endpoint) -> Result<TcpStream> {
    let connected = TcpStream::connect((endpoint.host(), endpoint.port())).await;
    let stream = connected.map_err(|error| failure(endpoint, ErrorKind::Unavailable, error.to_string()))?;
    // A question is one small packet that should not wait. Without the option it does, and the answer is the same.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// The `host:port` that a server is called by. The zone of an IPv6 address means nothing to it (RFC 6874, section 4).
pub(crate) fn authority(endpoint: &Endpoint) -> String {
    match endpoint.host().split_once('%') {
        Some((address, _)) => format!("[{address}]:{}", endpoint.port()),
        None => endpoint.authority(),
    }
}

/// An error with its causes, since hyper's own text leaves them out.
pub(crate) fn causes(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f08_a_zone_stays_with_us() {
        for (endpoint, expected) in [
            ("http://[fe80::1%25eth0]:80", "[fe80::1]:80"),
            ("http://[::1]:80", "[::1]:80"),
            ("http://10.0.0.5:80", "10.0.0.5:80"),
        ] {
            assert_eq!(authority(&endpoint.parse().unwrap()), expected);
        }
    }
}
