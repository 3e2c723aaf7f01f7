//! Three servers that are one ZooKeeper.

use std::io;

use super::{ZooKeeper, ZooKeeperOptions, ZooKeeperProgram};
use crate::{Program, server};

/// An ensemble of three members, which goes on with two of them.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    members: Vec<ZooKeeper>,
}

impl ZooKeeperEnsemble {
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
        let new = |_| ZooKeeperProgram::new(ZooKeeperOptions::default());
        let mut programs = (0..3).map(new).collect::<io::Result<Vec<_>>>()?;
        let line = |(n, program): (usize, &ZooKeeperProgram)| {
            let [peer, election] = [0, 1].map(|at| program.peer[at].number());
            format!("server.{}=127.0.0.1:{peer}:{election}", n + 1)
        };
        let lines: Vec<_> = programs.iter().enumerate().map(line).collect();
        for (n, program) in programs.iter_mut().enumerate() {
            program.options = ZooKeeperOptions::default().with_lines(lines.clone());
            program.member = Some(n + 1);
        }
        Ok(Self { members: ZooKeeper::start_all(programs).await? })
    }

    /// The members, each of which can be killed, frozen and started again.
    pub fn members(&self) -> &[ZooKeeper] {
        &self.members
    }

    /// The addresses for clients as `127.0.0.1:port,127.0.0.1:port,…`.
    pub fn addresses(&self) -> String {
        server::addresses(&self.members)
    }
}
