//! Three servers that are one etcd.

use std::io;

use super::{Etcd, EtcdOptions, EtcdProgram};
use crate::{Program, server};

/// A cluster of three members, which goes on with two of them.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Etcd>,
}

impl EtcdCluster {
    /// Starts three members and waits until each serves requests.
    ///
    /// # Errors
    ///
    /// The end of a member's log, when it ends or does not answer within half a minute.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call ends the members.
    pub async fn start() -> io::Result<Self> {
        let new = |_| EtcdProgram::new(EtcdOptions::default());
        let mut programs = (0..3).map(new).collect::<io::Result<Vec<_>>>()?;
        let peer = |(n, program): (usize, &EtcdProgram)| format!("member-{n}=http://{}", program.peer.address());
        let peers: Vec<_> = programs.iter().enumerate().map(peer).collect();
        for (n, program) in programs.iter_mut().enumerate() {
            // Of an argument that is given twice, the last one counts.
            program.options = EtcdOptions::default().with_args([
                "--name".to_owned(),
                format!("member-{n}"),
                "--initial-cluster".to_owned(),
                peers.join(","),
            ]);
        }
        Ok(Self { members: Etcd::start_all(programs).await? })
    }

    /// The members, each of which can be killed, frozen and started again.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// The addresses for clients as `127.0.0.1:port,127.0.0.1:port,…`.
    pub fn addresses(&self) -> String {
        server::addresses(&self.members)
    }
}
