//! ZooKeeper behind the contracts of discovery-kit: ephemeral sequential nodes and one recursive watch.
//!
//! `zookeeper://user:password@host1:2181,host2:2181/root?ttl=10s` opens a handle; see this crate's README for every option.
//!
//! - One session a handle, which the client keeps through reconnects. A record is an ephemeral sequential node of it; of several nodes
//!   with one id the newest counts, so a takeover is a new node and then the removal of the older ones.
//! - One persistent recursive watch of the root for all subscriptions. It says which nodes changed; only these are read.
//! - Sets are read by multi-reads, many nodes a request.
//! - Servers before 3.6 know none of this but the nodes: there it is one-shot watches (`child_watches.rs`, `children.rs`) and one request a
//!   node (`load.rs`, `own.rs`). `server.rs` says what a server can do.
//!
//! **Does not contain** policy: when to try again and what to keep meanwhile is the engine's
//! ([`discovery_core::Engine`]).

mod child_watches;
mod children;
mod connection;
mod error;
mod events;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod lease;
mod load;
mod members;
mod own;
mod place;
mod record;
mod rights;
mod roster;
mod routes;
mod server;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod tree;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use discovery_core::{Backend, Engine, Login, Policy, RegistryUrl, Result, TlsFiles, UrlOptions, store::Capabilities};

use connection::Connection;
use server::Server;
use store::ZooKeeperStore;
use tree::Tree;

/// ZooKeeper's own default port for clients.
const DEFAULT_PORT: u16 = 2181;

/// The largest record. ZooKeeper closes the connection on a request above 1,048,575 bytes (`jute.maxbuffer`); the rest leaves room for
/// the path and the rights.
pub const MAX_RECORD: usize = 1_000_000;

/// Opens a handle on a ZooKeeper ensemble. Connecting happens in the background; an ensemble that is away is no error.
///
/// # Errors
/// `InvalidInput` for a URL without hosts, a malformed option, a prefix that ZooKeeper cannot hold, or a TTL out of bounds;
/// `Unsupported` for `zookeepers://` without the feature `tls`.
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
fn store(url: &RegistryUrl, mut options: UrlOptions, policy: &Policy) -> Result<ZooKeeperStore> {
    let tls = match url.scheme() {
        "zookeepers" | "zks" => {
            if options.text("server_name").is_some() {
                return Err(options.invalid("server_name", "is not supported by the ZooKeeper client"));
            }
            Some(TlsFiles::from_url(&mut options)?)
        }
        _ => None,
    };
    let oldest = match options.text("oldest").as_deref() {
        None | Some("auto") => None,
        Some(text) => match Server::parse(text) {
            None => {
                return Err(
                    options.invalid("oldest", "is not a version of ZooKeeper from 3.4 on, such as 3.5, nor auto")
                );
            }
            server => server,
        },
    };
    let login = Login::from_url(url, &mut options, None)?;
    let others = rights::from_url(&mut options, login.is_some())?;
    options.finish()?;
    let tree = Tree::new(url.path(), login.is_some(), others)?;
    let connection = Connection::new(url, policy, login, tree, tls, oldest)?;
    let capabilities = Capabilities {
        backend: "zookeeper",
        registers: true,
        // The server raises what is below two of its ticks and lowers what is above twenty. Its tick is not known before it has
        // answered, so these are the bounds that hold for every server: a shorter session could not be kept, a longer one not be sent.
        min_ttl: Duration::from_secs(1),
        max_ttl: Duration::from_millis(i32::MAX.unsigned_abs().into()),
        max_record: MAX_RECORD,
        lease_survives_reconnect: true,
        lease_survives_restart: true,
    };
    Ok(ZooKeeperStore::new(connection, capabilities))
}
