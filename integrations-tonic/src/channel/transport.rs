//! The way to one instance: a task that dials, publishes its connection, notices its end, and dials again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use discovery_core::{Backoff, Endpoint, Instance};
use http::uri::Authority;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::dial::{Sender, dial};
use super::fleet::Fleet;

/// The schemes that are called without TLS, the most telling first.
const PLAIN: [&str; 3] = ["grpc", "http", "tcp"];
/// The schemes that would need TLS.
const SECURE: [&str; 2] = ["grpcs", "https"];

/// A connection that lived this long was a good one, so its end does not count as a failure. Without it, a server that accepts and
/// closes at once would be dialled without a pause.
const STEADY: Duration = Duration::from_secs(1);

/// Where an instance is called.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    endpoint: Endpoint,
    pub(super) authority: Authority,
}

impl Target {
    /// Chooses the endpoint, or says why none can be called.
    pub(super) fn of(instance: &Instance) -> Result<Self, String> {
        let Some(endpoint) = instance.endpoint(&PLAIN) else {
            return Err(match instance.endpoint(&SECURE) {
                Some(secure) => format!("{secure}: TLS is not supported yet; register a grpc:// endpoint"),
                None => format!("instance {} has no endpoint with the scheme grpc, http or tcp", instance.id()),
            });
        };
        match endpoint.authority().parse() {
            Ok(authority) => Ok(Self { endpoint: endpoint.clone(), authority }),
            Err(error) => Err(format!("{endpoint}: not an authority: {error}")),
        }
    }
}

/// Why an instance could not be reached, and when that was found out.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) at: Instant,
    pub(super) why: String,
}

enum Link {
    /// Being dialled; with the reason if the last dial failed.
    Down(Option<Failure>),
    /// Ready for requests.
    Up(Sender),
    /// The instance or this address of it is gone for good.
    Retired,
}

pub(super) struct Transport {
    id: Arc<str>,
    target: Result<Target, String>,
    /// Written by the transport's task, by whoever retires it, and by a call that finds its connection closed.
    /// The balancer is told under this lock, so that its last word is always the latest.
    link: Mutex<Link>,
}

impl Transport {
    pub(super) fn new(instance: &Instance) -> Self {
        let target = Target::of(instance);
        let failure = target.as_ref().err().map(|why| Failure { at: Instant::now(), why: why.clone() });
        Self { id: instance.id().into(), target, link: Mutex::new(Link::Down(failure)) }
    }

    pub(super) fn target(&self) -> &Result<Target, String> {
        &self.target
    }

    /// The connection, if there is one that takes requests. Otherwise the balancer learns that there is none.
    pub(super) fn sender(&self, fleet: &Fleet) -> Option<(Sender, Authority)> {
        let mut link = self.lock();
        match (&*link, &self.target) {
            (Link::Up(sender), Ok(target)) if !sender.is_closed() => Some((sender.clone(), target.authority.clone())),
            (Link::Retired, _) => None,
            _ => {
                self.put_down(&mut link, None, fleet);
                None
            }
        }
    }

    /// Whether a dial is under way whose predecessor did not fail.
    pub(super) fn is_hopeful(&self) -> bool {
        matches!(&*self.lock(), Link::Down(None))
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        match &*self.lock() {
            Link::Down(failure) => failure.clone(),
            _ => None,
        }
    }

    /// Ends it for good: no further request goes this way, and the balancer hears nothing more from it.
    pub(super) fn retire(&self, fleet: &Fleet) {
        if let Link::Up(_) = std::mem::replace(&mut *self.lock(), Link::Retired) {
            fleet.disconnected();
        }
    }

    fn publish(&self, sender: Sender, fleet: &Fleet) {
        let mut link = self.lock();
        if matches!(&*link, Link::Down(_)) {
            *link = Link::Up(sender);
            fleet.has_connected();
            fleet.balancer().set_available(&self.id, true);
        }
    }

    fn lose(&self, failure: Option<Failure>, fleet: &Fleet) {
        self.put_down(&mut self.lock(), failure, fleet);
    }

    fn put_down(&self, link: &mut Link, failure: Option<Failure>, fleet: &Fleet) {
        match link {
            Link::Retired => return,
            Link::Up(_) => {
                fleet.disconnected();
                *link = Link::Down(failure);
            }
            Link::Down(known) => *known = failure.or(known.take()),
        }
        fleet.balancer().set_available(&self.id, false);
    }

    fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one transport connected until `retired` resolves, then lets what was given to its connection be sent, and returns.
pub(super) async fn supervise(transport: Arc<Transport>, fleet: Arc<Fleet>, mut retired: oneshot::Receiver<()>) {
    // Picked before others only if all are unreachable; repeated with every dial, since the balancer may not know the id yet.
    transport.lose(None, &fleet);
    let Ok(target) = &transport.target else {
        return;
    };
    let mut backoff = Backoff::new(fleet.options().backoff_cap);
    let mut warned = false;
    loop {
        let dialled = tokio::select! {
            dialled = dial(&target.endpoint, fleet.options()) => dialled,
            _ = &mut retired => return,
        };
        let mut pause = Duration::ZERO;
        match dialled {
            Ok((sender, connection)) => {
                warned = false;
                tracing::debug!(id = %transport.id, endpoint = %target.endpoint, "connected");
                let since = Instant::now();
                transport.publish(sender, &fleet);
                tokio::pin!(connection);
                tokio::select! {
                    () = &mut connection => {}
                    // Its senders are gone but for those of calls that are about to send, so it ends by itself.
                    _ = &mut retired => return connection.await,
                }
                transport.lose(None, &fleet);
                if since.elapsed() >= STEADY {
                    backoff.reset();
                } else {
                    pause = backoff.next(true);
                }
            }
            Err(why) => {
                // Once for each outage: the next dials fail alike.
                if std::mem::replace(&mut warned, true) {
                    tracing::debug!(id = %transport.id, %why, "cannot connect");
                } else {
                    tracing::warn!(id = %transport.id, %why, "cannot connect; dialling on");
                }
                transport.lose(Some(Failure { at: Instant::now(), why }), &fleet);
                fleet.tell();
                pause = backoff.next(true);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = &mut retired => return,
        }
    }
}
