//! The signals that ask a process to stop.

use discovery_core::{Error, ErrorKind, Result};

/// Listens from its creation on. Tokio keeps the handlers for the rest of the process's life, so the default action never returns.
pub(super) struct Signals {
    #[cfg(unix)]
    streams: [tokio::signal::unix::Signal; 4],
}

impl Signals {
    #[cfg(unix)]
    pub(super) fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(refused);
        Ok(Self {
            streams: [
                listen(SignalKind::terminate())?,
                listen(SignalKind::interrupt())?,
                listen(SignalKind::hangup())?,
                listen(SignalKind::quit())?,
            ],
        })
    }

    #[cfg(unix)]
    pub(super) async fn received(&mut self) {
        let [terminate, interrupt, hangup, quit] = &mut self.streams;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    }

    /// Takes what was received so far for one signal.
    #[cfg(unix)]
    pub(super) fn forget(&mut self) {
        use std::task::{Context, Waker};
        let mut context = Context::from_waker(Waker::noop());
        for stream in &mut self.streams {
            while stream.poll_recv(&mut context).is_ready() {}
        }
    }

    #[cfg(not(unix))]
    pub(super) fn forget(&mut self) {}

    #[cfg(not(unix))]
    pub(super) fn listen() -> Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    pub(super) async fn received(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "cannot listen to ctrl-c");
            // Without a way to be asked, it serves on until it is dropped.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(unix)]
fn refused(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unsupported, "listen to", "signals", error.to_string()).with_source(error)
}
