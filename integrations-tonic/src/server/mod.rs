//! The server side: bind, register what was bound, serve, and leave without failing a call.

mod accepted;
mod health;
mod listener;
mod running;
mod signals;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use discovery_core::advertise::{self, ADVERTISE_ENV};
use discovery_core::{Backend, Error, ErrorKind, Instance, InstanceBuilder, RegisterOptions, Result};
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::Server;

pub use running::RunningServer;

use health::Health;
use running::AT_ONCE;
use signals::Signals;

/// How long a drained server serves on by default, so that every watcher can see the mark before the first call is refused.
const DEFAULT_GRACE: Duration = Duration::from_secs(2);
/// How long open calls may take to finish by default.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// Signals within this time after the first are taken for the same one.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

type Change = Box<dyn FnOnce(InstanceBuilder) -> InstanceBuilder + Send>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Ready = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// A bound listener that becomes a registered gRPC server.
///
/// It registers the address that was bound, never a wildcard nor port 0: in this order what [`advertise`](Self::advertise) says, what
/// the environment variable `DISCOVERY_ADVERTISE` says, the bound address, and for a wildcard the address from which the registry is
/// reached.
///
/// It stops in steps, each with a deadline: mark the record as draining and serve on during the grace, deregister (within 5 s), stop
/// accepting and let open calls finish up to the deadline, close what is left.
///
/// Beside what it is given it serves gRPC's standard health service, which says NOT_SERVING until the server is
/// [ready](Self::with_readiness), and again from the moment it drains.
#[must_use = "a server does nothing until it is started"]
pub struct ServiceServer {
    listener: TcpListener,
    bound: SocketAddr,
    advertised: Option<String>,
    change: Option<Change>,
    scheme: &'static str,
    ready: Option<Ready>,
    registration: RegisterOptions,
    /// Services that the health service knows by name; `None` for no health service.
    healthy: Option<Vec<String>>,
    transport: Server,
    grace: Duration,
    deadline: Duration,
}

impl ServiceServer {
    /// Binds `host:port`, `[v6]:port`, or `:port` for all interfaces; port 0 takes a free one. Of several addresses behind a name, the
    /// first that can be bound is taken.
    ///
    /// # Errors
    /// `InvalidInput` for what is no address of this host, `PermissionDenied` for a port that takes more rights, `Unavailable` if the
    /// address is in use.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing bound.
    pub async fn bind(address: &str) -> Result<Self> {
        let (listener, bound) = listener::bind(address).await?;
        Ok(Self {
            listener,
            bound,
            advertised: None,
            change: None,
            scheme: "grpc",
            ready: None,
            registration: RegisterOptions::default(),
            healthy: Some(Vec::new()),
            transport: Server::builder(),
            grace: DEFAULT_GRACE,
            deadline: DEFAULT_DEADLINE,
        })
    }

    /// The address that was bound, with its real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.bound
    }

    /// Says under which `host` or `host:port` others reach this server.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertised = Some(address.into());
        self
    }

    /// Changes the instance before it is registered: weight, zone, version, metadata, id.
    pub fn instance(mut self, change: impl FnOnce(InstanceBuilder) -> InstanceBuilder + Send + 'static) -> Self {
        self.change = Some(Box::new(change));
        self
    }

    /// Registers only once this is done, such as the warming of a cache; meanwhile it serves, and its health service says NOT_SERVING. If it
    /// fails, the server does not start.
    pub fn with_readiness<E: Into<BoxError>>(
        mut self,
        ready: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> Self {
        self.ready = Some(Box::pin(async { ready.await.map_err(Into::into) }));
        self
    }

    /// Sets how the instance is registered, such as how long that may take: 10 s by default, after which the start fails. With a longer deadline a
    /// server that starts while the registry is away serves meanwhile, and registers when it is back.
    pub fn with_registration(mut self, options: RegisterOptions) -> Self {
        self.registration = options;
        self
    }

    /// Names services, such as `greeter.Greeter`, that the health service answers for besides the server as a whole, whose name is empty.
    pub fn with_health_of(mut self, services: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.healthy = Some(services.into_iter().map(Into::into).collect());
        self
    }

    /// Serves no health service, for routes that have one of their own: two would collide.
    pub fn without_health(mut self) -> Self {
        self.healthy = None;
        self
    }

    /// Registers `grpcs` endpoints, for a [transport](Self::with_transport) with TLS.
    pub fn with_secure_scheme(mut self) -> Self {
        self.scheme = "grpcs";
        self
    }

    /// Serves with these settings of tonic's, such as limits, keepalive and timeouts; those of its listener do not apply.
    pub fn with_transport(mut self, transport: Server) -> Self {
        self.transport = transport;
        self
    }

    /// Sets how long it serves on while marked as draining; 2 s by default.
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how long open calls may take to finish once it no longer accepts; 10 s by default.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Serves and registers, and returns once both hold.
    ///
    /// # Errors
    /// `InvalidInput` if no address can be advertised or the instance is invalid, `Unavailable` if it did not get ready, or why it could not be
    /// registered. Nothing is served after an error.
    ///
    /// # Cancel safety
    /// Dropping the future closes the listener and withdraws the registration.
    pub async fn start(self, backend: Arc<dyn Backend>, service: &str, routes: Routes) -> Result<RunningServer> {
        let environment = std::env::var(ADVERTISE_ENV).ok();
        let advertised = self.advertised.as_deref();
        // Only a wildcard needs to know from where the registry is reached.
        let source = if self.bound.ip().is_unspecified() { backend.source_address().await } else { None };
        let endpoint = advertise::endpoint(self.scheme, self.bound, advertised, environment.as_deref(), source)?;
        let builder = Instance::builder(service).endpoints([endpoint]);
        let instance = match self.change {
            Some(change) => change(builder),
            None => builder,
        }
        .build()?;
        let (health, routes) = Health::beside(routes, self.healthy).await;
        let mut serving = running::serve(self.transport, routes, self.listener, self.bound);
        if let Some(ready) = self.ready {
            let ready = tokio::select! {
                ready = ready => ready,
                ended = serving.ended() => {
                    ended?;
                    Err("serving ended".into())
                }
            };
            ready.map_err(|error: BoxError| {
                Error::new(ErrorKind::Unavailable, "start", service, format!("it did not get ready: {error}"))
            })?;
        }
        health.set(true).await;
        let registration = backend.register(instance, self.registration).await?;
        Ok(RunningServer::new(self.bound, registration, serving, health, self.grace, self.deadline))
    }

    /// Serves and registers until SIGTERM, SIGINT, SIGHUP or SIGQUIT (elsewhere than on Unix: ctrl-c), then drains and stops.
    ///
    /// A second signal during the drain, half a second or more after the first, skips the waiting: it deregisters within a second and closes what is open.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`RunningServer::shutdown`]; `Unsupported` if the signals cannot be listened to.
    ///
    /// # Cancel safety
    /// Dropping the future stops at once, as dropping a [`RunningServer`] does.
    pub async fn serve(self, backend: Arc<dyn Backend>, service: &str, routes: Routes) -> Result<()> {
        // Before the start, so that no signal in its course is lost.
        let mut signals = Signals::listen()?;
        let Some((mut running, stopping)) = self.start_until(backend, service, routes, signals.received()).await?
        else {
            return Ok(());
        };
        if !stopping {
            tokio::select! {
                ended = running.ended() => return ended,
                () = signals.received() => {}
            }
        }
        tracing::info!(service, "draining");
        // Whoever signals a process and its group means it once.
        let again = async {
            tokio::time::sleep(SAME_SIGNAL).await;
            signals.forget();
            signals.received().await;
        };
        tokio::select! {
            drained = running.drain() => return drained,
            () = again => tracing::warn!(service, "stopping before the drain is over"),
        }
        running.stop_now().await
    }

    /// Serves and registers until `shutdown` resolves, then drains and stops.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`RunningServer::shutdown`].
    ///
    /// # Cancel safety
    /// Dropping the future stops at once, as dropping a [`RunningServer`] does.
    pub async fn serve_until(
        self,
        backend: Arc<dyn Backend>,
        service: &str,
        routes: Routes,
        shutdown: impl Future<Output = ()>,
    ) -> Result<()> {
        tokio::pin!(shutdown);
        let Some((mut running, stopping)) = self.start_until(backend, service, routes, &mut shutdown).await? else {
            return Ok(());
        };
        if !stopping {
            tokio::select! {
                ended = running.ended() => return ended,
                () = shutdown => {}
            }
        }
        running.shutdown().await
    }

    /// Starts, and says whether it was asked to stop meanwhile; `None` if it was, and the start did not come to an end soon.
    ///
    /// A start that is nearly over is awaited: others may see the instance already, so it has to drain like any other.
    async fn start_until(
        self,
        backend: Arc<dyn Backend>,
        service: &str,
        routes: Routes,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<(RunningServer, bool)>> {
        let start = self.start(backend, service, routes);
        tokio::pin!(start);
        tokio::select! {
            started = &mut start => return Ok(Some((started?, false))),
            () = stop => {}
        }
        match tokio::time::timeout(AT_ONCE, start).await {
            Ok(started) => Ok(Some((started?, true))),
            Err(_) => Ok(None),
        }
    }
}

impl fmt::Debug for ServiceServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceServer")
            .field("bound", &self.bound)
            .field("advertised", &self.advertised)
            .field("grace", &self.grace)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
