//! Whether the server serves requests.

use std::net::SocketAddr;

use crate::probe;

/// Tells whether the server serves requests; one without a leader answers with another text.
pub(super) async fn serves(server: SocketAddr) -> bool {
    let answer = probe::ask(server, b"srvr").await;
    answer.is_ok_and(|answer| String::from_utf8_lossy(&answer).contains("Mode: "))
}
