//! etcd behind the contracts of discovery-kit: leases and watches, on etcd 3.4 and newer.
//!
//! `etcd://user:password@host1:2379,host2:2379/prefix?ttl=10s` opens a handle; see this crate's README for every option.
//!
//! - One lease a handle, renewed at a third of what was granted. Every write is a transaction that looks at the lease of what stands
//!   there, so an old owner cannot touch a newer one's record.
//! - A set is loaded in pages at one revision and then watched from the next one; all watches of a handle share one stream.
//! - One client for each host, sticky, with failover of our own: the client's own balancer keeps calling hosts that are down.
//!
//! **Does not contain** policy: when to try again and what to keep meanwhile is the engine's
//! ([`discovery_core::Engine`]).

mod connection;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod lease;
mod load;
mod record;
mod store;
mod streams;
#[cfg(feature = "tls")]
mod tls;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use discovery_core::{
    Backend, Engine, KeySpace, Login, Policy, RegistryUrl, Result, TlsFiles, UrlOptions, store::Capabilities,
};

use connection::Connection;
use store::EtcdStore;

/// etcd's own default port for clients.
const DEFAULT_PORT: u16 = 2379;

/// The largest record. etcd refuses a request above 1.5 MiB by default; the rest leaves room for the key and the transaction.
pub const MAX_RECORD: usize = 1024 * 1024;

/// Opens a handle on an etcd cluster. Connecting happens in the background; a cluster that is away is no error.
///
/// # Errors
/// `InvalidInput` for a URL without hosts, a malformed option or prefix, or a TTL outside of etcd's bounds.
pub fn connect(url: &RegistryUrl) -> Result<Arc<dyn Backend>> {
    let mut options = url.options();
    let policy = Policy::from_url(&mut options)?;
    start(url, options, policy)
}

/// Opens a handle as [`connect`] does, under a policy of the caller's instead of the URL's.
///
/// # Errors
/// As [`connect`].
pub fn open(url: &RegistryUrl, policy: Policy) -> Result<Arc<dyn Backend>> {
    start(url, url.options(), policy)
}

fn start(url: &RegistryUrl, options: UrlOptions, policy: Policy) -> Result<Arc<dyn Backend>> {
    let store = store(url, options, &policy)?;
    Ok(Engine::start(Arc::new(store), policy)?)
}

/// What a URL names; nothing is dialled yet.
fn store(url: &RegistryUrl, mut options: UrlOptions, policy: &Policy) -> Result<EtcdStore> {
    let tls = match url.scheme() {
        "etcds" => Some(TlsFiles::from_url(&mut options)?),
        _ => None,
    };
    let login = Login::from_url(url, &mut options, None)?;
    options.finish()?;
    let connection = Connection::new(url, policy, login, tls)?;
    let capabilities = Capabilities {
        backend: "etcd",
        registers: true,
        // A lease lives at least one and a half election timeouts, of which the default is one second; etcd raises what is below.
        min_ttl: Duration::from_secs(2),
        // `MaxLeaseTTL` of the server.
        max_ttl: Duration::from_secs(9_000_000_000),
        max_record: MAX_RECORD,
        lease_survives_reconnect: true,
        lease_survives_restart: true,
    };
    Ok(EtcdStore::new(connection, KeySpace::new(url.path())?, capabilities))
}
