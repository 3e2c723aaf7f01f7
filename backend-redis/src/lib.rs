//! Redis behind the contracts of discovery-kit: records with a TTL, Lua and pub/sub, on Redis 6 and newer.
//!
//! `redis://user:password@host:6379/prefix?ttl=10s` opens a handle, `redis+sentinel://` and `redis+cluster://` one on what stands
//! behind them; see this crate's README for every option and for the layout.
//!
//! - Registering, renewing, removing and sweeping are one script each call: atomic, one round trip, on the server's clock. Each change
//!   counts the service's version up and is published together with the version before it, so a lost notification is seen.
//! - A watch subscribes first and then reads. It knows the nearest deadline and sweeps when that has passed, so a dead process is
//!   gone in time without expired-key events, which come up to minutes late.
//! - One connection carries requests and notifications (RESP3), a second one the sets that are read. Who is asked for the master (hosts
//!   in turn, Sentinels, the Cluster's own map) is decided anew with each connection. In a Cluster each master has its own, and each is
//!   lost and found by itself.
//!
//! **Does not contain** policy: when to try again and what to keep meanwhile is the engine's
//! ([`discovery_core::Engine`]).

mod cluster;
mod connection;
mod digest;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod layout;
mod lease;
mod live;
mod load;
mod map;
mod names;
mod node;
mod notice;
mod pushes;
mod record;
mod script;
mod sentinel;
mod settings;
mod store;
mod tls;
mod values;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use discovery_core::{Backend, Engine, KeySpace, Policy, RegistryUrl, Result, UrlOptions, store::Capabilities};

use connection::Connection;
use layout::Layout;
use settings::Settings;
use store::RedisStore;

/// The largest record. Redis takes values of 512 MB, but a set of such would block the server and fill its memory.
pub const MAX_RECORD: usize = 1024 * 1024;

/// The script that everything is done with, for operators: `redis-cli --eval registry.lua …` writes and removes records by hand.
pub const REGISTRY_LUA: &str = script::TEXT;

/// Opens a handle on a Redis server, or on what stands behind Sentinels or in a Cluster. Connecting happens in the background; a
/// server that is away is no error.
///
/// # Errors
/// `InvalidInput` for a URL without hosts, a malformed option or prefix, or a TTL out of bounds.
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
fn store(url: &RegistryUrl, mut options: UrlOptions, policy: &Policy) -> Result<RedisStore> {
    let settings = Settings::read(url, &mut options)?;
    options.finish()?;
    let capabilities = Capabilities {
        backend: "redis",
        registers: true,
        // Renewed at a third, a shorter one would not survive a pause of the server, such as a fork.
        min_ttl: Duration::from_secs(1),
        max_ttl: Duration::from_secs(365 * 24 * 60 * 60),
        max_record: MAX_RECORD,
        lease_survives_reconnect: true,
        // With `appendonly yes`; a server without persistence is one that restarts empty.
        lease_survives_restart: true,
    };
    let layout = Layout::new(KeySpace::new(&settings.prefix)?);
    Ok(RedisStore::new(Connection::new(url, settings, policy), layout, capabilities, policy.timeout))
}
