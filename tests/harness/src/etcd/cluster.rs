//! Three servers that are one etcd.

use std::io;

use super::{Etcd, EtcdOptions, program::Layout};

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
    /// The end of a member's log, when it ends or does not answer within ten seconds.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call ends the members.
    pub async fn start() -> io::Result<Self> {
        let layouts = (0..3).map(|_| Layout::new()).collect::<io::Result<Vec<_>>>()?;
        let peers: Vec<_> = layouts
            .iter()
            .enumerate()
            .map(|(n, layout)| format!("member-{n}=http://{}", layout.peer.address()))
            .collect();
        let mut members = Vec::new();
        for (n, layout) in layouts.into_iter().enumerate() {
            // Of an argument that is given twice, the last one counts.
            let options = EtcdOptions::default().with_args([
                "--name".to_owned(),
                format!("member-{n}"),
                "--initial-cluster".to_owned(),
                peers.join(","),
            ]);
            members.push(Etcd::launch(layout, options)?);
        }
        for member in &members {
            member.ready().await?;
        }
        Ok(Self { members })
    }

    /// The members, each of which can be killed, frozen and started again.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// The addresses for clients as `127.0.0.1:port,127.0.0.1:port,…`.
    pub fn addresses(&self) -> String {
        self.members.iter().map(Etcd::address).collect::<Vec<_>>().join(",")
    }
}
