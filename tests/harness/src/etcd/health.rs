//! Whether the server serves requests.

use std::net::SocketAddr;

use crate::probe;

/// NOSPACE does not count, as a full server starts and serves reads all the same.
const QUESTION: &[u8] = b"GET /health?exclude=NOSPACE HTTP/1.0\r\n\r\n";

/// Tells whether the server has a leader and can read through it.
pub(super) async fn serves(server: SocketAddr) -> bool {
    let answer = probe::ask(server, QUESTION).await;
    answer.is_ok_and(|answer| String::from_utf8_lossy(&answer).contains(r#""health":"true""#))
}
