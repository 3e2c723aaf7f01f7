//! The way to one instance: for each connection a task that dials, publishes it, notices its end, and dials again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use discovery_core::{Backoff, Instance};
use tokio::sync::watch;
use tokio::time::Instant;

use super::builder::Options;
use super::connection::Sender;
use super::dial::dial;
use super::fleet::Fleet;
use super::target::Target;

/// A connection that lived this long was a good one, so its end does not count as a failure. Without it, a server that accepts and
/// closes at once would be dialled without a pause.
const STEADY: Duration = Duration::from_secs(1);

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
    Up(Door),
}

/// Where requests go in. Dropped, it takes no more, and whoever waits there goes elsewhere.
struct Door(Sender);

impl Drop for Door {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The connections to one instance.
struct Links {
    all: Box<[Link]>,
    /// Which one is looked at first for the next request.
    next: usize,
    /// The instance or this address of it is gone for good.
    retired: bool,
}

impl Links {
    fn is_up(&self) -> bool {
        self.all.iter().any(|link| matches!(link, Link::Up(_)))
    }

    /// The next connection in turn that takes requests, one that need not be waited for if there is one; those that take no more are taken
    /// for down.
    fn take_turn(&mut self) -> Option<Sender> {
        let count = self.all.len();
        let mut full = None;
        for at in (self.next..self.next + count).map(|turn| turn % count) {
            match &self.all[at] {
                Link::Up(Door(sender)) if sender.is_closed() => self.all[at] = Link::Down(None),
                Link::Up(Door(sender)) if sender.is_full() => full = full.or(Some((at, sender.clone()))),
                Link::Up(Door(sender)) => {
                    self.next = (at + 1) % count;
                    return Some(sender.clone());
                }
                Link::Down(_) => {}
            }
        }
        let (at, sender) = full?;
        self.next = (at + 1) % count;
        Some(sender)
    }
}

pub(super) struct Transport {
    id: Arc<str>,
    target: Result<Arc<Target>, String>,
    /// Written by the transport's tasks, by whoever retires it, and by a call that finds a connection closed.
    /// The balancer is told under this lock, so that its last word is always the latest.
    links: Mutex<Links>,
}

impl Transport {
    pub(super) fn new(instance: &Instance, options: &Options) -> Self {
        let target = Target::of(instance, options.tls.as_ref()).map(Arc::new);
        let failure = target.as_ref().err().map(|why| Failure { at: Instant::now(), why: why.clone() });
        let all = (0..options.connections).map(|_| Link::Down(failure.clone())).collect();
        Self { id: instance.id().into(), target, links: Mutex::new(Links { all, next: 0, retired: false }) }
    }

    /// Whether it goes where another target says.
    pub(super) fn leads_to(&self, target: &Result<Target, String>) -> bool {
        self.target.as_deref() == target.as_ref()
    }

    /// A connection, if there is one that takes requests. Otherwise the balancer learns that there is none.
    pub(super) fn sender(&self, fleet: &Fleet) -> Option<(Sender, Arc<Target>)> {
        let mut links = self.lock();
        let (Ok(target), false) = (&self.target, links.retired) else {
            return None;
        };
        let was_up = links.is_up();
        match links.take_turn() {
            Some(sender) => Some((sender, target.clone())),
            None => {
                self.tell_down(was_up, fleet);
                None
            }
        }
    }

    /// Whether a dial is under way whose predecessor did not fail.
    pub(super) fn is_hopeful(&self) -> bool {
        let links = self.lock();
        !links.retired && !links.is_up() && links.all.iter().any(|link| matches!(link, Link::Down(None)))
    }

    /// Why it cannot be reached, if it cannot.
    pub(super) fn failure(&self) -> Option<Failure> {
        let links = self.lock();
        let failures = links.all.iter().map(|link| match link {
            Link::Down(failure) => Some(failure.clone()),
            Link::Up(_) => None,
        });
        failures.collect::<Option<Vec<_>>>()?.into_iter().flatten().max_by_key(|failure| failure.at)
    }

    /// Ends it for good: no further request goes this way, and the balancer hears nothing more from it.
    pub(super) fn retire(&self, fleet: &Fleet) {
        let mut links = self.lock();
        if links.is_up() {
            fleet.disconnected();
        }
        links.retired = true;
        links.all.iter_mut().for_each(|link| *link = Link::Down(None));
    }

    fn publish(&self, at: usize, sender: Sender, fleet: &Fleet) {
        let mut links = self.lock();
        if links.retired {
            return;
        }
        let was_up = links.is_up();
        links.all[at] = Link::Up(Door(sender));
        if was_up {
            fleet.tell();
        } else {
            fleet.has_connected();
        }
        fleet.balancer().set_available(&self.id, true);
    }

    fn lose(&self, at: usize, failure: Option<Failure>, fleet: &Fleet) {
        let mut links = self.lock();
        if links.retired {
            return;
        }
        let was_up = links.is_up();
        let known = match &mut links.all[at] {
            Link::Down(known) => known.take(),
            Link::Up(_) => None,
        };
        links.all[at] = Link::Down(failure.or(known));
        if !links.is_up() {
            self.tell_down(was_up, fleet);
        }
    }

    /// Told again with every dial, since the balancer may not have known the id before.
    fn tell_down(&self, was_up: bool, fleet: &Fleet) {
        if was_up {
            fleet.disconnected();
        }
        fleet.balancer().set_available(&self.id, false);
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves when the transport is retired. Nothing is ever sent: its sender is dropped.
async fn gone(retired: &mut watch::Receiver<()>) {
    while retired.changed().await.is_ok() {}
}

/// Keeps one connection of a transport until `retired` resolves. What was given to it by then is sent and answered.
pub(super) async fn supervise(
    transport: Arc<Transport>,
    at: usize,
    fleet: Arc<Fleet>,
    mut retired: watch::Receiver<()>,
) {
    // Picked before others only if all are unreachable.
    transport.lose(at, None, &fleet);
    let Ok(target) = &transport.target else {
        return;
    };
    let mut backoff = Backoff::new(fleet.options().backoff_cap);
    let mut ping_after = fleet.options().keepalive_interval;
    let mut warned = false;
    loop {
        let dialled = tokio::select! {
            dialled = dial(target, ping_after, fleet.options()) => dialled,
            () = gone(&mut retired) => return,
        };
        let mut pause = Duration::ZERO;
        match dialled {
            Ok((sender, room)) => {
                warned = false;
                tracing::debug!(id = %transport.id, endpoint = %target.endpoint, "connected");
                let since = Instant::now();
                transport.publish(at, sender, &fleet);
                let was_pinged_out = tokio::select! {
                    pinged = room.closed() => pinged,
                    // Its senders are gone but for those of calls that are about to send, so it ends by itself.
                    () = gone(&mut retired) => return,
                };
                if was_pinged_out {
                    // What gRPC asks of a client that hears "too_many_pings" (gRFC A8).
                    ping_after = ping_after.saturating_mul(2);
                    tracing::warn!(id = %transport.id, ?ping_after, "the server wants fewer pings");
                }
                let lived = since.elapsed();
                if lived >= STEADY {
                    backoff.reset();
                    transport.lose(at, None, &fleet);
                } else {
                    let why =
                        format!("{}: the server closed the connection after {lived:?}", target.endpoint.authority());
                    transport.lose(at, Some(Failure { at: Instant::now(), why }), &fleet);
                    fleet.tell();
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
                transport.lose(at, Some(Failure { at: Instant::now(), why }), &fleet);
                fleet.tell();
                pause = backoff.next(true);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = gone(&mut retired) => return,
        }
    }
}
