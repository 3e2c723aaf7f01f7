//! Three servers that are one ZooKeeper.

use std::io;

use super::{ZooKeeper, ZooKeeperOptions, program::Layout};

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
        let layouts = (0..3).map(|_| Layout::new()).collect::<io::Result<Vec<_>>>()?;
        let line = |(n, layout): (usize, &Layout)| {
            let [peer, election] = [0, 1].map(|at| layout.peer[at].number());
            format!("server.{}=127.0.0.1:{peer}:{election}", n + 1)
        };
        let lines: Vec<_> = layouts.iter().enumerate().map(line).collect();
        let mut members = Vec::new();
        for (n, layout) in layouts.into_iter().enumerate() {
            let options = ZooKeeperOptions::default().with_lines(lines.clone());
            members.push(ZooKeeper::launch(layout, options, Some(n + 1))?);
        }
        for member in &members {
            member.ready().await?;
        }
        Ok(Self { members })
    }

    /// The members, each of which can be killed, frozen and started again.
    pub fn members(&self) -> &[ZooKeeper] {
        &self.members
    }

    /// The addresses for clients as `127.0.0.1:port,127.0.0.1:port,…`.
    pub fn addresses(&self) -> String {
        self.members.iter().map(ZooKeeper::address).collect::<Vec<_>>().join(",")
    }
}
