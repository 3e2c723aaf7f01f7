//! Starts, stops, freezes and cuts real servers for tests.
//!
//! [`Etcd`], [`ZooKeeper`] and [`Redis`] run a server of one test with its own ports, data and log, and end it with the test; each is
//! a [`Server`] of its own [`Program`].
//! [`EtcdCluster`], [`ZooKeeperEnsemble`], [`RedisSentinel`] and [`RedisCluster`] are several of them.
//! [`Proxy`] stands between a client and a server and misbehaves as a network does.
//! [`ServerProcess`] starts, freezes and ends any server program, and does not let it outlive the test process.
//! [`Node`] is a server in the test's own process that counts its connections and can be killed; [`spread`] and [`settle`] say who answers.
//! [`Port`] reserves a loopback port against all other tests on the machine.
//! `Certificates` (feature `certificates`) are an authority of its own and what it signed.
//! `cases` (feature `cases`) is what the backends' own tests have in common.
//! [`eventually`] and [`until`] wait for something that happens soon, and say what they saw when it does not.
//! [`skip_unless_available!`] skips a test loudly where a server is not installed.
//!
//! Everything listens and dials on loopback only, and needs Unix and the real clock: a runtime with paused time makes every limit
//! pass at once.
//! Fallible functions return [`std::io::Result`], so that a test can pass on every failure with `?`.
//!
//! ```no_run
//! use std::time::Duration;
//! use discovery_harness::{Etcd, Proxy, eventually, skip_unless_available};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! skip_unless_available!("etcd", "etcdctl");
//! let etcd = Etcd::start().await?;
//! let proxy = Proxy::start(etcd.socket_address()).await?;
//! let client = tokio::net::TcpStream::connect(proxy.address()).await?;
//! eventually(Duration::from_secs(1), "one open connection", async || proxy.open() == 1).await;
//! proxy.cut().await;
//! # drop(client);
//! # Ok(())
//! # }
//! ```

mod answers;
mod availability;
#[cfg(feature = "cases")]
pub mod cases;
#[cfg(feature = "certificates")]
mod certificates;
mod child;
mod etcd;
mod log;
mod node;
mod poll;
mod port;
mod probe;
mod process;
mod program;
mod proxy;
mod redis;
mod server;
mod spawner;
mod tool;
mod zookeeper;

pub use answers::{settle, spread};
pub use availability::{available, find};
#[cfg(feature = "certificates")]
pub use certificates::Certificates;
pub use etcd::{Etcd, EtcdCluster, EtcdOptions, EtcdProgram};
pub use node::{Connection, Gate, Listener, Node, Seat, Serve};
pub use poll::{SOON, Sight, eventually, stays, until};
pub use port::{Port, free_port, refusing_address};
pub use process::ServerProcess;
pub use program::Program;
pub use proxy::Proxy;
pub use redis::{Redis, RedisCluster, RedisOptions, RedisProgram, RedisSentinel};
pub use server::{Backup, Server};
pub use zookeeper::{ZooKeeper, ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperProgram};
