//! A TCP proxy that misbehaves as a network does.

mod connection;
mod counters;
mod flow;
mod gate;
mod line;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::sync::Mutex;

use self::{
    flow::{Flow, Mode},
    gate::Gate,
};
use crate::{Port, free_port};

/// A TCP proxy on a loopback port, between a client and a server that is to look out of order.
///
/// It starts by passing everything, and each of its modes holds until the next is set.
/// A change of mode is complete when its method returns: no byte passes any more that the new mode forbids, sockets that it
/// resets are closed, and connections that a client had made before count as made under the old mode.
/// Bytes that the proxy has written before may still be on their way to the peer's program.
///
/// What the proxy has read and not passed on, up to one MiB in each direction, stays in order and flows on in a mode that allows
/// it; ends and resets of connections wait in the same line.
/// Its port stays reserved while nothing listens on it.
/// Where the server refuses, a client is first accepted and then reset, as the proxy must accept before it can dial.
///
/// The tasks run on the runtime that started the proxy; dropping the proxy aborts them, and all connections are reset.
///
/// # Cancel safety
///
/// A cancelled change of mode may be complete, not begun, or in the case of the two cuts have reset only some connections; the next
/// change works all the same.
#[derive(Debug)]
pub struct Proxy {
    server: SocketAddr,
    flow: Arc<Flow>,
    /// None while new connections are refused; the lock keeps changes of mode apart.
    gate: Mutex<Option<Gate>>,
    /// The last field, as the listener must be closed before the port goes to someone else.
    port: Port,
}

impl Proxy {
    /// Starts a proxy that passes everything to `server`, which need not be up.
    ///
    /// # Errors
    ///
    /// The errors of reserving a port and listening on it.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let proxy = Self { server, flow: Arc::new(Flow::new()), gate: Mutex::new(None), port: free_port()? };
        proxy.pass().await?;
        Ok(proxy)
    }

    /// Returns the address for clients as `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.socket_address().to_string()
    }

    /// Returns the address for clients.
    pub fn socket_address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Passes everything, first of all what another mode has held back; only [`freeze_open`](Self::freeze_open) is not undone.
    ///
    /// # Errors
    ///
    /// The errors of listening again after [`cut`](Self::cut), as in all the other modes.
    pub async fn pass(&self) -> io::Result<()> {
        self.switch(Mode::Pass).await
    }

    /// Resets all connections and refuses new ones, as a host does on which nothing listens.
    ///
    /// Attempts are not counted, since no one is there to see them.
    pub async fn cut(&self) {
        let mut gate = self.gate.lock().await;
        self.flow.set(Mode::Reset);
        if let Some(open) = gate.take() {
            open.admit_waiting();
            open.reset_all().await;
            open.close().await;
        }
    }

    /// Resets all connections, and accepts, counts and resets each new one.
    ///
    /// # Errors
    ///
    /// The errors of listening again after [`cut`](Self::cut).
    pub async fn cut_counting(&self) -> io::Result<()> {
        let mut gate = self.gate.lock().await;
        self.flow.set(Mode::Reset);
        let open = self.opened(&mut gate)?;
        open.admit_waiting();
        open.reset_all().await;
        Ok(())
    }

    /// Keeps all connections open, accepts new ones, and lets nothing through until the next mode, not even the end of one.
    ///
    /// # Errors
    ///
    /// The errors of listening again after [`cut`](Self::cut).
    pub async fn freeze(&self) -> io::Result<()> {
        self.switch(Mode::Freeze).await
    }

    /// Freezes the connections that are open for ever, and passes new ones, as after a change of route.
    ///
    /// Only the two cuts end the frozen ones.
    ///
    /// # Errors
    ///
    /// The errors of listening again after [`cut`](Self::cut).
    pub async fn freeze_open(&self) -> io::Result<()> {
        let mut gate = self.gate.lock().await;
        self.opened(&mut gate)?.admit_waiting();
        self.flow.freeze_arrived();
        self.flow.set(Mode::Pass);
        Ok(())
    }

    /// Passes what clients send, and drops for good what the server sends; its ends of connections are held back.
    ///
    /// # Errors
    ///
    /// The errors of listening again after [`cut`](Self::cut).
    pub async fn swallow_replies(&self) -> io::Result<()> {
        self.switch(Mode::SwallowReplies).await
    }

    /// Delays dialling the server and each chunk in both directions by `delay`, and keeps their order.
    ///
    /// Chunks travel side by side: ten chunks at once arrive after one delay, not after ten.
    ///
    /// # Errors
    ///
    /// The errors of listening again after [`cut`](Self::cut).
    pub async fn delay(&self, delay: Duration) -> io::Result<()> {
        self.switch(Mode::Delay(delay)).await
    }

    async fn switch(&self, mode: Mode) -> io::Result<()> {
        let mut gate = self.gate.lock().await;
        if let Some(open) = gate.as_ref() {
            open.admit_waiting();
        }
        // Set before a closed gate opens, or the first connection could still be treated as in the old mode.
        self.flow.set(mode);
        self.opened(&mut gate).map(drop)
    }

    fn opened<'gate>(&self, gate: &'gate mut Option<Gate>) -> io::Result<&'gate Gate> {
        let open = match gate.take() {
            Some(open) => open,
            None => Gate::open(self.port.address(), self.server, Arc::clone(&self.flow))?,
        };
        Ok(gate.insert(open))
    }
}
