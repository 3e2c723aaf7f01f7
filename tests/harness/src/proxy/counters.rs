//! What a proxy has seen.

use std::time::Instant;

use super::Proxy;

impl Proxy {
    /// Returns how many connections clients have made since the start, including those that were reset at once.
    pub fn connects(&self) -> u64 {
        self.flow.state().connect_times.len() as u64
    }

    /// Returns when the proxy accepted each of these connections.
    pub fn connect_times(&self) -> Vec<Instant> {
        self.flow.state().connect_times.clone()
    }

    /// Returns how many connections are open on the client's side, frozen ones too: neither closed by the client nor reset.
    pub fn open(&self) -> usize {
        self.flow.state().open
    }

    /// Returns how many bytes have been passed to the server.
    pub fn bytes_up(&self) -> u64 {
        self.flow.state().bytes_up
    }

    /// Returns how many bytes have been passed to clients.
    pub fn bytes_down(&self) -> u64 {
        self.flow.state().bytes_down
    }
}
