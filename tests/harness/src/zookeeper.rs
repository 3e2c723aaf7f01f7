//! A single ZooKeeper server.

mod ensemble;
mod health;
mod options;
mod program;
mod session;

pub use self::{ensemble::ZooKeeperEnsemble, options::ZooKeeperOptions, program::ZooKeeperProgram};
use crate::Server;

/// A single ZooKeeper server, which takes about 0.5 s to start on an idle machine.
///
/// The jar is Debian's, or what `DISCOVERY_ZOOKEEPER_CLASSPATH` names.
pub type ZooKeeper = Server<ZooKeeperProgram>;
