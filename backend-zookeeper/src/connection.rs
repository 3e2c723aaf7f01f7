//! The connection: one session, which the client keeps through reconnects, and a new one when it has ended.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use discovery_core::store::{Scope, source_towards};
use discovery_core::{Error, ErrorKind, Key, Login, Policy, RegistryUrl, Result, TlsFiles};
use zookeeper_client::{Client, Error as ClientError, SessionState};

use crate::DEFAULT_PORT;
use crate::child_watches::ChildWatches;
use crate::error::{classify, classify_opening, of_state};
use crate::events::Events;
use crate::server::Server;
use crate::tree::Tree;
use crate::watch::Known;

/// The hosts, and the session that works.
pub(crate) struct Connection {
    hosts: Vec<String>,
    login: Option<Login>,
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::Tls>,
    ttl: Duration,
    /// How long a request may last.
    patience: Duration,
    /// How long a connection may be silent, and a new one take.
    silence: Duration,
    pub(crate) tree: Tree,
    /// The version that requests are made for; `None` to find it out with each session.
    oldest: Option<Server>,
    /// Written by the one task that connects.
    current: RwLock<Option<Arc<Live>>>,
    address: String,
}

/// A session, and what hangs on it.
pub(crate) struct Live {
    pub(crate) client: Client,
    /// As whom the session has logged in last.
    credentials: Mutex<Option<Vec<u8>>>,
    /// What the server can do.
    pub(crate) server: Server,
    pub(crate) watches: Watches,
    /// What was written where, so that an audit sees what others changed.
    pub(crate) written: Mutex<HashMap<Key, Written>>,
    /// The keys that may have nodes on this session: those that were tried to be written, and are not known to be removed.
    tried: Mutex<HashSet<Key>>,
    /// What the open subscriptions know, for reconciliation.
    pub(crate) followed: Mutex<HashMap<Scope, Weak<Known>>>,
    /// How long a read of a subscription may take, which no engine bounds.
    pub(crate) patience: Duration,
    /// The local address that the ensemble is reached from.
    source: Option<IpAddr>,
}

/// How subscriptions hear of changes.
pub(crate) enum Watches {
    Recursive(Events),
    Children(ChildWatches),
}

/// A node of this session, as it was written last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) path: String,
    /// The transaction that wrote it; any other means that somebody else wrote later.
    pub(crate) mzxid: i64,
    /// How often its data were written, which guards the next write of it.
    pub(crate) version: i32,
}

impl Connection {
    pub(crate) fn new(
        url: &RegistryUrl,
        policy: &Policy,
        login: Option<Login>,
        tree: Tree,
        tls: Option<TlsFiles>,
        oldest: Option<Server>,
    ) -> Result<Self> {
        let hosts = url.hosts(DEFAULT_PORT)?;
        #[cfg(feature = "tls")]
        let tls = tls.map(|files| crate::tls::Tls::new(files, &hosts)).transpose()?;
        #[cfg(not(feature = "tls"))]
        if tls.is_some() {
            let advice = "TLS is not compiled in; build discovery-zookeeper with the feature \"tls\"";
            return Err(Error::new(ErrorKind::Unsupported, "open", url.to_string(), advice));
        }
        let (ttl, patience, current) = (policy.ttl, policy.timeout, RwLock::new(None));
        // The client lowers it to two fifths of the session timeout where that leaves no time for another host.
        let silence = policy.probe + policy.timeout;
        Ok(Self {
            hosts,
            login,
            #[cfg(feature = "tls")]
            tls,
            ttl,
            patience,
            silence,
            tree,
            oldest,
            current,
            address: url.to_string(),
        })
    }

    /// The address without credentials.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The session that was opened last, in whatever state it is.
    pub(crate) fn session(&self) -> Result<Arc<Live>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        current.ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "reach", &*self.address, "no session is open at the moment")
        })
    }

    /// The session, if it is connected. Requests would otherwise wait in the client and be sent much later.
    pub(crate) fn live(&self) -> Result<Arc<Live>> {
        let live = self.session()?;
        match live.client.state() {
            SessionState::SyncConnected => Ok(live),
            state => Err(of_state(state, &self.address)),
        }
    }

    pub(crate) fn source_address(&self) -> Option<IpAddr> {
        self.session().ok()?.source
    }

    /// Waits until the client has brought its session back, or opens a new one if it has ended.
    pub(crate) async fn connect(&self) -> Result<()> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            // The session reconnects with what is in the files now.
            tls.options()?;
        }
        if let Ok(live) = self.session()
            && is_back(&live.client).await
        {
            self.log_in_anew(&live).await?;
            match self.settle(&live.client).await {
                Err(ClientError::SessionExpired) => {}
                answer => return answer.map_err(|error| classify(error, "reach", &self.address)),
            }
        }
        let live = Arc::new(self.open().await?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
        Ok(())
    }

    async fn open(&self) -> Result<Live> {
        let failed = |error| classify(error, "reach", &self.address);
        // Likely the server is still what it was.
        let assumed = self.oldest.or_else(|| Some(self.session().ok()?.server)).unwrap_or(Server::V3_6);
        let credentials = self.credentials()?;
        let mut client = self.dial(assumed, credentials.as_deref()).await?;
        self.settle(&client).await.map_err(failed)?;
        let server = match self.oldest {
            Some(server) => server,
            None => self.examine(&client).await.map_err(failed)?,
        };
        if !server.suits(assumed) {
            client = self.dial(server, credentials.as_deref()).await?;
            self.settle(&client).await.map_err(failed)?;
        }
        let (asked, granted) = (self.ttl, client.session_timeout());
        if asked != granted {
            tracing::info!(?asked, ?granted, address = %self.address, "the server granted another session timeout");
        }
        let watches = if server.watches_recursively() {
            Watches::Recursive(Events::new(client.clone(), self.tree.root()))
        } else {
            tracing::info!(?server, address = %self.address, "the server is older than 3.6, so every record is watched");
            Watches::Children(ChildWatches::new(client.clone(), self.tree.root()))
        };
        Ok(Live {
            client,
            credentials: Mutex::new(credentials),
            server,
            watches,
            written: Mutex::default(),
            tried: Mutex::default(),
            followed: Mutex::default(),
            patience: self.patience,
            source: source_towards(&self.hosts).await,
        })
    }

    /// Finds out what the server can do.
    async fn examine(&self, client: &Client) -> Result<Server, ClientError> {
        let server = Server::of(client, self.tree.root()).await?;
        // The question may have cost the connection, which shows in the next answer.
        if server == Server::V3_5 && self.settle(client).await.is_err() && is_back(client).await {
            self.settle(client).await?;
        }
        Ok(server)
    }

    /// User and password as ZooKeeper wants them.
    fn credentials(&self) -> Result<Option<Vec<u8>>> {
        let Some(login) = &self.login else { return Ok(None) };
        Ok(Some(format!("{}:{}", login.user(), login.password()?).into_bytes()))
    }

    /// Adds the password of now to an open session, if it is another one. To ZooKeeper that is one more identity, which the session has
    /// beside the former one, and its nodes are given to both.
    pub(crate) async fn log_in_anew(&self, live: &Live) -> Result<()> {
        let credentials = self.credentials()?;
        let known = || live.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(new) = credentials.filter(|new| known().as_ref() != Some(new)) else { return Ok(()) };
        let failed = |error| classify(error, "log in at", &self.address);
        live.client.auth("digest", &new).await.map_err(failed)?;
        let paths: Vec<_> = live.written().values().map(|written| written.path.clone()).collect();
        for path in paths {
            match live.client.set_acl(&path, &self.tree.acls(), None).await {
                // What is gone is made anew, and what somebody took the right to is theirs to give.
                Ok(_) | Err(ClientError::NoNode | ClientError::NoAuth) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        *known() = Some(new);
        tracing::info!(address = %self.address, "logged in with the password that is in the file now");
        Ok(())
    }

    async fn dial(&self, server: Server, credentials: Option<&[u8]>) -> Result<Client> {
        let mut connector = Client::connector()
            .with_session_timeout(self.ttl)
            .with_connection_timeout(self.silence)
            // Each host once; when to try again is not decided here.
            .with_fail_eagerly();
        if let Some(credentials) = credentials {
            connector = connector.with_auth("digest", credentials);
        }
        let connector = server.prepare(connector);
        let cluster = self.hosts.join(",");
        let failed = |error| classify_opening(error, &self.address);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let error = match connector.with_tls(tls.options()?).secure_connect(&cluster).await {
                Ok(client) => return Ok(client),
                Err(error) => failed(error),
            };
            return Err(tls.refusal(&self.hosts, self.patience).await.unwrap_or(error));
        }
        connector.connect(&cluster).await.map_err(failed)
    }

    /// Asks for an answer that needs the leader, and that brings a server which lags behind up to date.
    async fn settle(&self, client: &Client) -> Result<(), ClientError> {
        client.sync(self.tree.root()).await
    }
}

impl Live {
    /// The name of the session.
    pub(crate) fn id(&self) -> u64 {
        self.client.session_id().0.cast_unsigned()
    }

    pub(crate) fn written(&self) -> MutexGuard<'_, HashMap<Key, Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tried(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn followed(&self) -> MutexGuard<'_, HashMap<Scope, Weak<Known>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits while the client tries to reconnect; false once the session has ended.
async fn is_back(client: &Client) -> bool {
    let mut states = client.state_watcher();
    loop {
        match client.state() {
            SessionState::SyncConnected => return true,
            state if state.is_terminated() => return false,
            _ => _ = states.changed().await,
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The credentials are in it.
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}
