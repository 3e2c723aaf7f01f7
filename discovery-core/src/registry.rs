//! The two traits that users hold, and what they hand out.

mod feeds;
mod registration;
mod watch;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use registration::{RegisterOptions, Registration, RegistrationState};
pub use watch::Watch;

pub(crate) use feeds::{Feeds, Opened, Source};
pub(crate) use registration::{Command, Keeping};

use crate::model::check_name;
use crate::{CacheStatus, Instance, Result, ServiceNames, Snapshot};

/// Registers instances and keeps them registered.
///
/// Held by whoever offers a service; implemented by [`Engine`](crate::Engine) over every store, and by wrappers around it.
///
/// - **R1** [`register`](Self::register) returns once the record can be read back by others, or with a typed error by its deadline.
/// - **R2** [`Registration::deregister`] returns once the record is gone, is idempotent, tries again for real after an error, ends by
///   its deadline even if the store is away, and never removes a record that a newer owner wrote. After an `Ok` the record never comes back.
/// - **R3** A process that is killed is gone from every watcher's set within TTL + 1 s.
/// - **R4** While the handle lives, the record comes back by itself: lease revoked, session expired, key deleted, overwritten without
///   a lease, store restarted empty. Retries never end and back off with jitter up to a documented cap.
/// - **R5** A reconnect on which the lease survived writes nothing, and no watcher sees a change.
/// - **R6** The same instance id registered again takes over: listed once throughout, and the former owner can neither renew, repair
///   nor delete it; it reports itself superseded.
/// - **R7** [`Registration::update`] shows as one modification; what was last updated is what is re-registered.
/// - **R8** However many registrations and watches one handle holds, it keeps one connection to the store and one lease.
/// - **R9** [`Registration::drain`] marks the record, waits until watchers had time to see it, then deregisters.
/// - **R10** Dropping a registration deregisters as best it can; the TTL is the backstop. Nothing runs on after the last handle is dropped.
/// - **R11** Whether the registration holds right now is observable through [`Registration::state`].
/// - **R12** What cannot work is refused before it is sent, with a typed error.
#[async_trait]
pub trait Registry: Send + Sync {
    /// Registers an instance and keeps it registered while the returned handle lives.
    ///
    /// # Errors
    /// `InvalidInput` or `TooLarge` before anything is sent; `Unauthenticated` or `PermissionDenied` as soon as the store says so;
    /// `DeadlineExceeded` with the last cause if the store did not confirm in time. After an error nothing stays registered.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the registration as if its handle had been dropped.
    async fn register(&self, instance: Instance, options: RegisterOptions) -> Result<Registration> {
        let registration = self.begin(instance)?;
        registration.confirmed(options.deadline()).await?;
        Ok(registration)
    }

    /// Begins to register an instance and returns at once, for services that start while their registry is away.
    ///
    /// It is registered as soon as the store answers (R4), and whether it is says [`Registration::state`]. What the store refuses for good
    /// before it was ever registered ends it; [`Registration::confirmed`] says why.
    ///
    /// # Errors
    /// `InvalidInput`, `TooLarge` or `Unsupported` for what cannot work (R12), `Closed` if the backend was closed.
    fn begin(&self, instance: Instance) -> Result<Registration>;
}

/// Watches who is there.
///
/// Held by whoever calls a service; implemented by [`Engine`](crate::Engine) over every store, and by wrappers around it.
///
/// - **W1** The first thing a watch yields is the full set, also when it is empty, also when the service was never seen.
/// - **W2** No change between the first set and the following updates is lost; after any gap the set is read anew and compared.
/// - **W3** Whoever reads slowly gets the newest set; memory is bounded by one set a service, and no other watch waits.
/// - **W4** An outage never empties a set: it stays as it was, marked stale with since when and why.
/// - **W5** A watch ends only when it is dropped or its backend is closed.
/// - **W6** A record that cannot be read is skipped, counted, and reported once per key; its last good value is kept while the key exists.
/// - **W7** Any number of watches of one service on one handle share one subscription to the store.
/// - **W8** Sets converge even if notifications are lost, late, doubled or out of order, within the reconciliation interval.
/// - **W9** Instances that vanish by a change seen live are removed at once. A set that shrinks sharply across a gap is held as stale
///   for a grace, so that the living can come back first ([`Brake`](crate::Brake)).
/// - **W10** A watch never goes back: no older version of a record after a newer one, no removed instance without a new registration.
/// - **W11** Names are isolated, whatever characters they hold.
/// - **W12** A connection that is open but dead is noticed within 15 s by default, and replaced.
/// - **W13** With the store away from the start, `watch` returns at once, says why it has no set yet, and delivers one when the store comes.
#[async_trait]
pub trait Discovery: Send + Sync {
    /// Watches one service. It cannot fail: failure arrives as [`Watch::freshness`].
    fn watch(&self, service: &str) -> Watch;

    /// The current set of a service, read from the store or from a watch of it. It is stale if that is the best there is.
    ///
    /// # Errors
    /// `DeadlineExceeded` with the last cause if no set could be read in time, `InvalidInput` for a bad name.
    async fn snapshot(&self, service: &str, deadline: Duration) -> Result<Arc<Snapshot>> {
        check_name("service", service)?;
        self.watch(service).ready(deadline).await
    }

    /// Watches the names of the services that have at least one record.
    fn watch_services(&self) -> Watch<ServiceNames>;

    /// The names of the services that have at least one record.
    ///
    /// # Errors
    /// `DeadlineExceeded` with the last cause if the list could not be read in time.
    async fn services(&self, deadline: Duration) -> Result<Arc<ServiceNames>> {
        self.watch_services().ready(deadline).await
    }
}

/// One registry: both halves behind one handle, handed out as `Arc<dyn Backend>`.
#[async_trait]
pub trait Backend: Registry + Discovery + std::fmt::Debug {
    /// What the store can do and where its limits are.
    fn capabilities(&self) -> &crate::store::Capabilities;

    /// The store's address without credentials, for messages.
    fn address(&self) -> String;

    /// How the cache on disk does; `None` where there is none ([`Policy::cache`](crate::Policy::cache)).
    fn cache_status(&self) -> Option<CacheStatus> {
        None
    }

    /// The local address from which the store is reached, which others can usually reach too.
    ///
    /// It waits for the store, up to the deadline of a connection; `None` if it does not come.
    ///
    /// # Cancel safety
    /// Safe to drop at any time.
    async fn source_address(&self) -> Option<IpAddr>;

    /// Deregisters everything, gives the lease up, ends all watches, and returns once that is done or the deadline has passed.
    ///
    /// # Errors
    /// The last failure, if something could not be removed in time; the TTL removes it then.
    async fn close(&self, deadline: Duration) -> Result<()>;
}
