//! What a connection passes on in each direction.

use std::{io, sync::Arc};

use rustix::net::{Shutdown, shutdown};
use tokio::{
    net::TcpStream,
    sync::mpsc::{Receiver, Sender},
    time::Instant,
};

use super::flow::{Direction, Flow, Freight, Lane, Passage};

/// The connection is to be reset in both directions.
#[derive(Debug)]
pub(super) struct Broken;

/// Something that was read from one side for the other.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// A piece and when it reached the proxy.
pub(super) type Parcel = (Instant, Piece);

/// One connection's share of the flow.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) flow: Arc<Flow>,
    pub(super) number: usize,
}

impl Line {
    /// Passes on the parcels of one direction; when the peer does not take them, the other side hears of it after all it is owed.
    pub(super) async fn write(
        &self,
        direction: Direction,
        mut parcels: Receiver<Parcel>,
        to: &TcpStream,
        back: &Sender<Parcel>,
    ) -> Result<(), Broken> {
        let lane = self.lane(direction);
        while let Some((read_at, piece)) = parcels.recv().await {
            let written = match piece {
                Piece::Bytes(bytes) => self.write_all(lane, read_at, &bytes, to).await,
                Piece::End => {
                    let end = || Ok(shutdown(to, Shutdown::Write).map(|()| 0)?);
                    // A peer that is gone already needs no end.
                    self.flow.pass(lane, Freight::End, read_at, end).await.ok();
                    return Ok(());
                }
                Piece::Reset => {
                    self.permitted(direction, read_at).await;
                    return Err(Broken);
                }
            };
            if written.is_err() {
                let now = Instant::now();
                if back.send((now, Piece::Reset)).await.is_ok() {
                    return Ok(());
                }
                // The other direction has had its end and takes no more.
                self.permitted(direction.opposite(), now).await;
                return Err(Broken);
            }
        }
        Ok(())
    }

    async fn write_all(&self, lane: Lane, read_at: Instant, bytes: &[u8], to: &TcpStream) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.flow.pass(lane, Freight::Bytes, read_at, || to.try_write(rest)).await {
                Ok(Passage::Passed(count)) => rest = rest.get(count..).unwrap_or_default(),
                Ok(Passage::Swallowed) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until news other than bytes may pass.
    pub(super) async fn permitted(&self, direction: Direction, since: Instant) {
        let lane = self.lane(direction);
        // The action cannot fail, so there is no error to lose.
        self.flow.pass(lane, Freight::End, since, || Ok(0)).await.ok();
    }

    fn lane(&self, direction: Direction) -> Lane {
        Lane { connection: self.number, direction }
    }
}
