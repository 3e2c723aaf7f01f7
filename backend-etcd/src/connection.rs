//! The connection: one client on one host at a time, and the next host when it fails.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use discovery_core::{Error, ErrorKind, Policy, RegistryUrl, Result, TlsFiles};
use etcd_client::{Client, ConnectOptions, GetOptions};
use tokio::time::timeout;

use crate::DEFAULT_PORT;
use crate::error::classify;
use crate::streams::Streams;

/// A page of records is far below this; it only has to be more than one record of the largest size.
pub(crate) const MAX_ANSWER: usize = 32 * 1024 * 1024;

/// The hosts, and the client that works.
pub(crate) struct Connection {
    hosts: Vec<String>,
    options: ConnectOptions,
    /// Where the certificates are, for `etcds`.
    tls: Option<TlsFiles>,
    /// How long one host may take, so that the last one still gets its turn within the policy's deadline.
    patience: Duration,
    /// The policy's deadline of a request.
    timeout: Duration,
    /// The host to try next. Only one task connects, so any ordering does.
    next: AtomicUsize,
    current: RwLock<Option<Arc<Live>>>,
    address: String,
}

/// A client that has answered, and its watch streams.
pub(crate) struct Live {
    pub(crate) client: Client,
    pub(crate) streams: Streams,
    /// How long one answer may take while a subscription is opened.
    pub(crate) patience: Duration,
    /// The local address that the host is reached from.
    source: Option<IpAddr>,
}

impl Connection {
    pub(crate) fn new(url: &RegistryUrl, policy: &Policy, tls: Option<TlsFiles>) -> Result<Self> {
        let hosts = url.hosts(DEFAULT_PORT)?;
        let hosts_count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let patience = (policy.connect_timeout / hosts_count).min(policy.timeout);
        let mut options = ConnectOptions::new()
            .with_connect_timeout(patience)
            // A member without a leader answers nothing that matters; the next host may have one.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        match (url.user(), url.password()) {
            (Some(user), Some(password)) => options = options.with_user(user, password),
            (Some(_), None) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "use",
                    format!("registry URL {:?}", url.to_string()),
                    "it names a user without a password; write user:password@host",
                ));
            }
            (None, _) => {}
        }
        let (next, current) = (AtomicUsize::new(0), RwLock::new(None));
        Ok(Self { hosts, options, tls, patience, timeout: policy.timeout, next, current, address: url.to_string() })
    }

    /// The address without credentials.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The client that works, or worked last.
    pub(crate) fn live(&self) -> Result<Arc<Live>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        current.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "reach", &*self.address, "no connection is open at the moment")
        })
    }

    pub(crate) fn source_address(&self) -> Option<IpAddr> {
        self.live().ok()?.source
    }

    /// Gives the client up and tries each host once, beginning after the one that failed.
    pub(crate) async fn connect(&self, probe_key: &str) -> Result<()> {
        if self.replace(None).is_some() {
            // The host in use has failed; asking it again first would cost what is left of the TTL.
            self.next.fetch_add(1, Ordering::Relaxed);
        }
        let mut last = None;
        for _ in 0..self.hosts.len() {
            let at = self.next.load(Ordering::Relaxed) % self.hosts.len();
            let host = &self.hosts[at];
            let error = match timeout(self.patience, self.open(host, probe_key)).await {
                Ok(Ok(live)) => {
                    self.replace(Some(Arc::new(live)));
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(_) => Error::new(
                    ErrorKind::DeadlineExceeded,
                    "connect to",
                    host,
                    format!("no answer within {:?}", self.patience),
                ),
            };
            self.next.store(at + 1, Ordering::Relaxed);
            // A refusal of the account says more than an unreachable host, and no other host would decide differently.
            if matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::InvalidInput | ErrorKind::Unsupported) {
                return Err(error);
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Internal, "connect to", &*self.address, "there is no host")))
    }

    async fn open(&self, host: &str, probe_key: &str) -> Result<Live> {
        let (endpoint, options) = match &self.tls {
            None => (format!("http://{host}"), self.options.clone()),
            Some(files) => (format!("https://{host}"), with_tls(self.options.clone(), files, host)?),
        };
        let client =
            Client::connect([endpoint], Some(options)).await.map_err(|error| classify(error, "connect to", host))?;
        match ask(&client, probe_key, host).await {
            // A refusal of this key is an answer; what is allowed is found out by those who ask for it.
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
        let source = source_towards(host).await;
        let streams = Streams::new(client.watch_client().max_decoding_message_size(MAX_ANSWER));
        Ok(Live { streams, client, patience: self.timeout, source })
    }

    fn replace(&self, live: Option<Arc<Live>>) -> Option<Arc<Live>> {
        std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), live)
    }
}

/// The certificates are read for each connection, so that a rotated one is used.
#[cfg(feature = "tls")]
fn with_tls(options: ConnectOptions, files: &TlsFiles, _host: &str) -> Result<ConnectOptions> {
    Ok(options.with_tls(crate::tls::options(files.read()?)))
}

#[cfg(not(feature = "tls"))]
fn with_tls(_options: ConnectOptions, _files: &TlsFiles, host: &str) -> Result<ConnectOptions> {
    let advice = "TLS is not compiled in; build discovery-etcd with the feature \"tls\"";
    Err(Error::new(ErrorKind::Unsupported, "connect to", host, advice))
}

/// Asks for an answer that needs the cluster's consent, so that a member cut off from the others counts as dead.
pub(crate) async fn ask(client: &Client, key: &str, host: &str) -> Result<()> {
    let options = GetOptions::new().with_count_only();
    client.kv_client().get(key, Some(options)).await.map(drop).map_err(|error| classify(error, "reach", host))
}

/// The local address that a datagram to the host would leave from; none is sent.
async fn source_towards(host: &str) -> Option<IpAddr> {
    let target = tokio::net::lookup_host(host).await.ok()?.next()?;
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = tokio::net::UdpSocket::bind(any).await.ok()?;
    socket.connect(target).await.ok()?;
    Some(socket.local_addr().ok()?.ip())
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's options hold the password.
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}
