//! A registered server at work, and the steps by which it stops.

use std::net::SocketAddr;
use std::time::Duration;

use discovery_core::{Error, ErrorKind, Registration, Result};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::transport::Server;

use super::health::Health;
use super::listener;

/// How long a stop without a drain may take to deregister, and connections to notice that they were cut.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);

/// A server that serves and is registered. Dropping it stops both at once: connections are cut, and the record is removed as best it can.
#[derive(Debug)]
#[must_use = "dropping it stops the server"]
pub struct RunningServer {
    bound: SocketAddr,
    registration: Registration,
    serving: Serving,
    health: Health,
    grace: Duration,
    deadline: Duration,
}

/// The task that accepts, and what ends it. tonic spawns a task for each connection; they end with their connection, at the latest
/// when `cut` is set or dropped.
#[derive(Debug)]
pub(super) struct Serving {
    bound: SocketAddr,
    /// `None` once it was seen to end.
    task: Option<JoinHandle<Result<(), tonic::transport::Error>>>,
    /// Dropping it stops accepting and tells the clients to go elsewhere.
    accepting: Option<oneshot::Sender<()>>,
    cut: watch::Sender<bool>,
}

pub(super) fn serve(mut transport: Server, routes: Routes, listener: TcpListener, bound: SocketAddr) -> Serving {
    let (accepting, stopped) = oneshot::channel::<()>();
    let (cut, cutting) = watch::channel(false);
    let serving = async move {
        let stopped = async {
            // Nothing is ever sent: it resolves when the sender is dropped.
            let _ = stopped.await;
        };
        let incoming = listener::accept(listener, cutting);
        transport.add_routes(routes).serve_with_incoming_shutdown(incoming, stopped).await
    };
    Serving { bound, task: Some(tokio::spawn(serving)), accepting: Some(accepting), cut }
}

impl Serving {
    /// Waits for the end of the task. Safe to drop at any time.
    pub(super) async fn ended(&mut self) -> Result<()> {
        let Some(task) = &mut self.task else {
            return Ok(());
        };
        let ended = task.await;
        self.task = None;
        let error = |why: String| Error::new(ErrorKind::Internal, "serve", self.bound.to_string(), why);
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => Err(error(failure.to_string()).with_source(failure)),
            Err(failure) => Err(error(failure.to_string()).with_source(failure)),
        }
    }

    /// Stops accepting, lets open calls finish up to `deadline`, then cuts what is left.
    async fn finish(&mut self, deadline: Duration) -> Result<()> {
        self.accepting = None;
        if let Ok(ended) = timeout(deadline, self.ended()).await {
            return ended;
        }
        tracing::warn!(bound = %self.bound, ?deadline, "open calls did not finish in time; closing them");
        self.cut.send_replace(true);
        // A connection that does not notice in time is left to its task, which ends with it.
        timeout(AT_ONCE, self.ended()).await.unwrap_or(Ok(()))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl RunningServer {
    pub(super) fn new(
        bound: SocketAddr,
        registration: Registration,
        serving: Serving,
        health: Health,
        grace: Duration,
        deadline: Duration,
    ) -> Self {
        Self { bound, registration, serving, health, grace, deadline }
    }

    /// The address that was bound, with its real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.bound
    }

    /// The registration, for its state and for updates of the record.
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// Drains and stops: says NOT_SERVING, marks the record as draining and serves on during the grace, deregisters, stops accepting, lets open calls
    /// finish up to the deadline, and closes what is left.
    ///
    /// # Errors
    /// Why the record could not be removed in time, in which case its TTL removes it, or why serving failed. It has stopped either way.
    ///
    /// # Cancel safety
    /// Dropping the future stops at once, as dropping the server does.
    pub async fn shutdown(mut self) -> Result<()> {
        self.drain().await
    }

    /// Waits until serving fails, and deregisters then.
    pub(super) async fn ended(&mut self) -> Result<()> {
        let ended = self.serving.ended().await;
        self.registration.deregister().await.and(ended)
    }

    pub(super) async fn drain(&mut self) -> Result<()> {
        self.health.set(false).await;
        let drained = tokio::select! {
            drained = self.registration.drain(self.grace) => drained,
            ended = self.serving.ended() => return self.registration.deregister().await.and(ended),
        };
        let finished = self.serving.finish(self.deadline).await;
        drained.and(finished)
    }

    /// Stops without a drain: deregisters within a second and cuts all connections.
    pub(super) async fn stop_now(mut self) -> Result<()> {
        self.health.set(false).await;
        let deregistered = self.registration.deregister_within(AT_ONCE).await;
        let finished = self.serving.finish(Duration::ZERO).await;
        deregistered.and(finished)
    }
}
