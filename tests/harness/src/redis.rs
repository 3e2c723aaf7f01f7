//! A single Redis server; a pair under Sentinels and a Cluster are made of such.

mod cli;
mod cluster;
mod options;
mod program;
mod sentinel;

use std::net::SocketAddr;

pub use self::{cluster::RedisCluster, options::RedisOptions, program::RedisProgram, sentinel::RedisSentinel};
use crate::Server;

/// A single Redis server, which takes some 20 ms to start on an idle machine.
///
/// It writes every change to disk before it answers, so a crash loses nothing.
pub type Redis = Server<RedisProgram>;

impl Redis {
    /// Returns the address for clients with TLS, where the options say that there is one.
    pub fn tls_socket_address(&self) -> SocketAddr {
        self.program.tls.address()
    }
}
