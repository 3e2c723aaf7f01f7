//! The connection: one client on one host at a time, and the next host when it fails.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use discovery_core::store::{Hosts, source_towards};
use discovery_core::{ErrorKind, Login, Policy, RegistryUrl, Result, TlsFiles};
use etcd_client::{Client, ConnectOptions, GetOptions};

use crate::DEFAULT_PORT;
use crate::error::classify;
use crate::streams::Streams;

/// A page of records is far below this; it only has to be more than one record of the largest size.
pub(crate) const MAX_ANSWER: usize = 32 * 1024 * 1024;

/// The hosts, and the client that works.
pub(crate) struct Connection {
    hosts: Hosts<Live>,
    options: ConnectOptions,
    login: Option<Login>,
    /// Where the certificates are, for `etcds`.
    tls: Option<TlsFiles>,
    /// The policy's deadline of a request.
    timeout: Duration,
}

/// A client that has answered, and its watch streams.
pub(crate) struct Live {
    pub(crate) client: Client,
    pub(crate) streams: Streams,
    /// How long one answer may take while a subscription is opened.
    pub(crate) patience: Duration,
    /// The local address that the host is reached from.
    source: Option<IpAddr>,
    /// Whether an audit has compared all records on this connection; written by audits alone, of which one is under way at a time, so that
    /// relaxed ordering suffices.
    pub(crate) compared: AtomicBool,
}

impl Connection {
    pub(crate) fn new(url: &RegistryUrl, policy: &Policy, login: Option<Login>, tls: Option<TlsFiles>) -> Result<Self> {
        let hosts = Hosts::new(url.hosts(DEFAULT_PORT)?, url.to_string(), policy);
        let options = ConnectOptions::new()
            .with_connect_timeout(hosts.patience())
            // A member without a leader answers nothing that matters; the next host may have one.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        Ok(Self { hosts, options, login, tls, timeout: policy.timeout })
    }

    /// The address without credentials.
    pub(crate) fn address(&self) -> &str {
        self.hosts.address()
    }

    /// The client that works, or worked last.
    pub(crate) fn live(&self) -> Result<Arc<Live>> {
        self.hosts.live()
    }

    pub(crate) fn source_address(&self) -> Option<IpAddr> {
        self.live().ok()?.source
    }

    /// Gives the client up and tries each host once, beginning after the one that failed.
    pub(crate) async fn connect(&self, probe_key: &str) -> Result<()> {
        self.hosts.reconnect(|host| self.open(host, probe_key)).await
    }

    async fn open(&self, host: String, probe_key: &str) -> Result<Live> {
        let host = &host;
        let options = match &self.login {
            None => self.options.clone(),
            Some(login) => self.options.clone().with_user(login.user(), login.password()?),
        };
        let (endpoint, options) = match &self.tls {
            None => (format!("http://{host}"), options),
            Some(files) => (format!("https://{host}"), with_tls(options, files, host)?),
        };
        let client =
            Client::connect([endpoint], Some(options)).await.map_err(|error| classify(error, "connect to", host))?;
        match ask(&client, probe_key, host).await {
            // A refusal of this key is an answer; what is allowed is found out by those who ask for it.
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
        let source = source_towards(std::slice::from_ref(host)).await;
        let streams = Streams::new(client.watch_client().max_decoding_message_size(MAX_ANSWER));
        Ok(Live { streams, client, patience: self.timeout, source, compared: AtomicBool::new(false) })
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
    Err(discovery_core::Error::new(ErrorKind::Unsupported, "connect to", host, advice))
}

/// Asks for an answer that needs the cluster's consent, so that a member cut off from the others counts as dead.
pub(crate) async fn ask(client: &Client, key: &str, host: &str) -> Result<()> {
    let options = GetOptions::new().with_count_only();
    client.kv_client().get(key, Some(options)).await.map(drop).map_err(|error| classify(error, "reach", host))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client holds the password.
        f.debug_struct("Connection").field("address", &self.address()).finish_non_exhaustive()
    }
}
