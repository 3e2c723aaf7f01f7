//! A single etcd server.

mod cluster;
mod ctl;
mod health;
mod options;
mod program;

pub use self::{cluster::EtcdCluster, options::EtcdOptions, program::EtcdProgram};
use crate::Server;

/// A single etcd server, which takes about 0.7 s to start on an idle machine, most of it the election.
pub type Etcd = Server<EtcdProgram>;
