//! All transports of a channel, kept in step with the watch.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use discovery_core::{Balancer, Change, Context, Instance, Pick, Snapshot, Watch};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::builder::Options;
use super::connection::Sender;
use super::news::News;
use super::target::Target;
use super::transport::{Failure, Transport, supervise};

/// How often a call picks in a row before it waits for news. Each pick in vain takes one instance out of the next picks, so a few
/// suffice; news follow whenever that made a difference.
const PICKS: usize = 4;

pub(super) struct Fleet {
    balancer: Balancer,
    options: Options,
    news: News,
    /// By instance id; written by `follow` alone, one entry at a time, so that readers never wait long.
    transports: RwLock<HashMap<Arc<str>, Arc<Transport>>>,
    /// How many are connected. A hint: whoever acts on it takes the transport's lock, so relaxed ordering suffices.
    connected: AtomicUsize,
}

/// An instance that takes a request, and the way to it.
pub(super) struct Chosen {
    pub(super) pick: Pick,
    pub(super) sender: Sender,
    pub(super) target: Arc<Target>,
}

impl Fleet {
    pub(super) fn new(balancer: Balancer, options: Options) -> Self {
        Self { balancer, options, news: News::default(), transports: RwLock::default(), connected: AtomicUsize::new(0) }
    }

    pub(super) fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    pub(super) fn has_connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    pub(super) fn disconnected(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn tell(&self) {
        self.news.tell();
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Picks among the connected; somebody else than the one to avoid and those who take no more at the moment, if the picker gives somebody
    /// else.
    pub(super) fn choose(&self, context: &Context<'_>, avoid: Option<&str>) -> Option<Chosen> {
        let mut second_best = None;
        for _ in 0..PICKS {
            if self.connected() == 0 {
                return None;
            }
            let pick = self.balancer.pick(context).ok()?;
            let instance = pick.instance();
            let transport = self.read(|transports| transports.get(instance.id()).cloned());
            match transport.and_then(|transport| transport.sender(self)) {
                Some((sender, target)) if avoid == Some(instance.id()) || sender.is_full() => {
                    // Kept in flight for the while, which moves pickers that go by load to others.
                    match second_best {
                        Some(_) => pick.discard(),
                        None => second_best = Some(Chosen { pick, sender, target }),
                    }
                }
                Some((sender, target)) => {
                    if let Some(second_best) = second_best {
                        second_best.pick.discard();
                    }
                    return Some(Chosen { pick, sender, target });
                }
                None => pick.discard(),
            }
        }
        second_best
    }

    /// Whether a call may soon be taken although nobody is connected: somebody is being dialled for the first time.
    pub(super) fn is_hopeful(&self) -> bool {
        let known = self.balancer.known();
        known > 0
            && self.read(|transports| {
                transports.len() < known || transports.values().any(|transport| transport.is_hopeful())
            })
    }

    /// Why a call found nobody: the balancer's reason, or that nobody is connected, and the last dial that failed.
    pub(super) fn nobody(&self, context: &Context<'_>) -> String {
        let mut why = match self.balancer.pick(context) {
            Err(error) => error.to_string(),
            Ok(pick) => {
                let (service, known) = (pick.instance().service().to_owned(), self.balancer.known());
                pick.discard();
                let freshness = self.balancer.freshness();
                format!("cannot reach an instance of {service:?}: {known} known, none connected; {freshness}")
            }
        };
        if let Some(failure) = self.last_failure() {
            why += &format!("; the last dial failed {:?} ago: {}", failure.at.elapsed(), failure.why);
        }
        why
    }

    fn last_failure(&self) -> Option<Failure> {
        self.read(|transports| {
            transports.values().filter_map(|transport| transport.failure()).max_by_key(|failure| failure.at)
        })
    }

    fn read<T>(&self, look: impl FnOnce(&HashMap<Arc<str>, Arc<Transport>>) -> T) -> T {
        look(&self.transports.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut HashMap<Arc<str>, Arc<Transport>>) -> T) -> T {
        change(&mut self.transports.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Follows the watch and owns the transports' tasks: dropped, it ends them all.
pub(super) async fn follow(fleet: Arc<Fleet>, mut watch: Watch) {
    let mut crew = Crew { fleet: fleet.clone(), tasks: JoinSet::new(), posts: HashMap::new() };
    let mut before: Option<Arc<Snapshot>> = None;
    let mut open = true;
    loop {
        tokio::select! {
            changed = watch.changed(), if open => {
                let Some(snapshot) = changed else {
                    // The backend was closed: the last set stays usable, as it does in the balancer.
                    open = false;
                    continue;
                };
                let changes = match &before {
                    Some(before) => snapshot.changes_since(before),
                    None => snapshot.instances().iter().map(|instance| Change::Added(instance.clone())).collect(),
                };
                for change in changes {
                    match change {
                        Change::Added(instance) => crew.add(&instance),
                        Change::Modified(_, now) => crew.modify(&now),
                        Change::Removed(instance) => crew.remove(instance.id()),
                    }
                }
                before = Some(snapshot);
                fleet.tell();
            }
            Some(ended) = crew.tasks.join_next() => if let Err(error) = ended {
                tracing::error!(%error, "a transport's task failed");
            },
            else => return,
        }
    }
}

/// The tasks behind the transports.
struct Crew {
    fleet: Arc<Fleet>,
    tasks: JoinSet<()>,
    /// Dropping a post tells its task that the transport is retired.
    posts: HashMap<Arc<str>, (Arc<Transport>, watch::Sender<()>)>,
}

impl Crew {
    fn add(&mut self, instance: &Instance) {
        let id: Arc<str> = instance.id().into();
        let transport = Arc::new(Transport::new(instance, self.fleet.options()));
        let (post, retired) = watch::channel(());
        self.fleet.write(|transports| transports.insert(id.clone(), transport.clone()));
        self.posts.insert(id, (transport.clone(), post));
        for at in 0..self.fleet.options().connections {
            self.tasks.spawn(supervise(transport.clone(), at, self.fleet.clone(), retired.clone()));
        }
    }

    fn modify(&mut self, instance: &Instance) {
        // A connection outlives every change of the record but that of the address.
        let same = self
            .posts
            .get(instance.id())
            .is_some_and(|(now, _)| now.leads_to(&Target::of(instance, self.fleet.options().tls.as_ref())));
        if !same {
            self.remove(instance.id());
            self.add(instance);
        }
    }

    fn remove(&mut self, id: &str) {
        self.fleet.write(|transports| transports.remove(id));
        if let Some((transport, _post)) = self.posts.remove(id) {
            transport.retire(&self.fleet);
        }
    }
}
