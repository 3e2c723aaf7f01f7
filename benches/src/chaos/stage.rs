//! The processes and the store of a run, and what is done to them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use discovery_harness::Proxy;
use tokio::task::JoinHandle;

use super::PREFIX;
use super::plan::{Event, Ill, Role, Round, Wire};
use crate::Result;
use crate::crew::Mate;
use crate::registry::{Member, Store};

/// Short enough that a round sees everything happen: leases end, connections are given up, tries are spread.
const OPTIONS: &str = "ttl=3s&backoff=2s&probe=1s&timeout=1s&connect_timeout=2s&reconcile=5s";
/// How long a process may take to answer that is not stopped.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// As long as a call may take, and a little more.
const LAST_CALLS: Duration = Duration::from_secs(11);
/// How long a registrar may take to leave in order, whatever the store does: longer than draining, deregistering and the last calls.
const LEAVE: Duration = Duration::from_secs(30);

/// One process.
pub(crate) struct Player {
    pub(crate) role: Role,
    pub(crate) id: String,
    pub(crate) mate: Mate,
    proxies: Vec<Proxy>,
    stopped: bool,
    leaving: bool,
}

/// What callers counted.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) excused: u64,
    /// Milliseconds.
    pub(crate) longest: u64,
    /// How many instances one sees.
    pub(crate) size: u64,
    pub(crate) reasons: String,
}

impl Calls {
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.excused += other.excused;
        self.longest = self.longest.max(other.longest);
    }
}

impl Player {
    /// What a caller counted, asked with these words.
    pub(crate) async fn calls(&self, question: &str) -> Result<Calls> {
        let answer = self.mate.ask(question, ANSWER).await?;
        let mut words = answer.splitn(6, ' ');
        let mut number = || words.next().and_then(|it| it.parse().ok()).ok_or(format!("no number in {answer:?}"));
        let [calls, failed, excused, longest, size] = [number()?, number()?, number()?, number()?, number()?];
        let reasons = words.next().unwrap_or_default().to_owned();
        Ok(Calls { calls, failed, excused, longest, size, reasons })
    }
}

pub(crate) struct Stage {
    pub(crate) store: Arc<Store>,
    pub(crate) players: BTreeMap<u32, Player>,
    /// Which registrations live: by id, whose they are and in which version.
    pub(crate) living: BTreeMap<String, (u32, u32)>,
    pub(crate) done: BTreeMap<&'static str, u64>,
    pub(crate) calls: Calls,
    /// Callers that did not say how their calls went.
    pub(crate) unheard: usize,
    /// Calls a second of each caller.
    rate: u32,
    logs: PathBuf,
    begun: Instant,
    /// Servers of the store on their way back.
    healing: Vec<JoinHandle<Result<()>>>,
    ill: Option<(Vec<usize>, Ill)>,
}

impl Stage {
    pub(crate) fn new(store: Store, rate: u32, logs: PathBuf) -> Self {
        Self {
            store: Arc::new(store),
            players: BTreeMap::new(),
            living: BTreeMap::new(),
            done: BTreeMap::new(),
            calls: Calls::default(),
            unheard: 0,
            rate,
            logs,
            begun: Instant::now(),
            healing: Vec::new(),
            ill: None,
        }
    }

    /// Says what happens, and when, by this run's clock and by that of the logs.
    pub(crate) fn trace(&self, what: &str) {
        eprintln!("{:8.3} {what}", self.begun.elapsed().as_secs_f64());
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    pub(crate) async fn play(&mut self, round: &Round) -> Result<()> {
        let begun = tokio::time::Instant::now();
        for (at, event) in round {
            tokio::time::sleep_until(begun + *at).await;
            self.trace(&format!("{event:?}"));
            self.happen(event).await?;
        }
        for healed in std::mem::take(&mut self.healing) {
            healed.await??;
        }
        self.trace("everything is healed");
        Ok(())
    }

    pub(crate) async fn happen(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Start { who, role, id, version } => self.start(*who, *role, id, *version).await?,
            Event::Kill(who) => {
                self.count("kills");
                self.note_calls(*who).await;
                if let Some(player) = self.players.remove(who) {
                    player.mate.process().kill()?;
                    self.forget(*who);
                }
            }
            Event::Stop(who) => {
                self.count("stops");
                if let Some(player) = self.players.get_mut(who) {
                    player.mate.process().freeze()?;
                    player.stopped = true;
                }
            }
            Event::Continue(who) => {
                if let Some(player) = self.players.get_mut(who) {
                    player.mate.process().thaw()?;
                    player.stopped = false;
                }
            }
            Event::Update(who, version) => {
                self.count("updates");
                // Heard by a process that is stopped when it goes on, and in order.
                self.tell(*who, &format!("update {version}"));
                for (owner, newest) in self.living.values_mut() {
                    if owner == who {
                        *newest = *version;
                    }
                }
            }
            Event::Drain(who) => {
                self.count("drains");
                self.tell(*who, "drain");
                if let Some(player) = self.players.get_mut(who) {
                    player.leaving = true;
                }
                self.forget(*who);
            }
            Event::Wire(who, wire) => self.wire(*who, *wire).await?,
            Event::Ill(which, ill) => self.fall_ill(*which, *ill).await?,
            Event::Well => self.heal()?,
        }
        Ok(())
    }

    fn tell(&self, who: u32, words: &str) {
        if let Some(player) = self.players.get(&who) {
            // What becomes of it is compared when everything is over.
            drop(player.mate.tell(words));
        }
    }

    /// Whoever is gone has no registration; another process may have the id by now.
    fn forget(&mut self, who: u32) {
        self.living.retain(|_, (owner, _)| *owner != who);
    }

    async fn start(&mut self, who: u32, role: Role, id: &str, version: u32) -> Result<()> {
        self.count("starts");
        let mut proxies = Vec::new();
        if self.store.takes_proxies() {
            for member in self.store.members() {
                proxies.push(Proxy::start(member.address()).await?);
            }
        }
        let hosts = proxies.iter().map(Proxy::address).collect::<Vec<_>>().join(",");
        let url = self.store.url((!proxies.is_empty()).then_some(&hosts), PREFIX);
        let (url, version_text, rate) = (format!("{url}?{OPTIONS}"), version.to_string(), self.rate.to_string());
        let words: &[&str] = match role {
            Role::Registrar => &["play", "registrar", id, &version_text, &url],
            Role::Watcher => &["play", "watcher", &url],
            Role::Caller => &["play", "caller", &rate, &url],
        };
        let mate = Mate::start(words, &self.logs.join(format!("{who}-{id}.log"))).await?;
        if role == Role::Registrar {
            self.living.insert(id.to_owned(), (who, version));
        }
        let player = Player { role, id: id.to_owned(), mate, proxies, stopped: false, leaving: false };
        self.players.insert(who, player);
        Ok(())
    }

    async fn wire(&mut self, who: u32, wire: Wire) -> Result<()> {
        let what = match wire {
            Wire::Pass => None,
            Wire::Cut => Some("cuts"),
            Wire::Freeze | Wire::FreezeOpen => Some("freezes"),
            Wire::Swallow => Some("swallows"),
            Wire::Delay(_) => Some("delays"),
        };
        if let Some(what) = what {
            self.count(what);
        }
        let Some(player) = self.players.get(&who) else { return Ok(()) };
        for proxy in &player.proxies {
            match wire {
                Wire::Pass => proxy.pass().await?,
                Wire::Cut => proxy.cut().await,
                Wire::Freeze => proxy.freeze().await?,
                Wire::FreezeOpen => proxy.freeze_open().await?,
                Wire::Swallow => proxy.swallow_replies().await?,
                Wire::Delay(delay) => proxy.delay(delay).await?,
            }
        }
        Ok(())
    }

    async fn fall_ill(&mut self, which: Option<usize>, ill: Ill) -> Result<()> {
        self.count(match ill {
            Ill::Kill => "store_kills",
            Ill::Stop => "store_stops",
            Ill::Freeze => "store_freezes",
            Ill::Empty => "store_emptied",
        });
        // A server may still be on its way back from the last time.
        for healed in std::mem::take(&mut self.healing) {
            healed.await??;
        }
        let members = self.store.members();
        let which: Vec<_> = which.map_or_else(|| (0..members.len()).collect(), |one| vec![one]);
        for member in which.iter().filter_map(|at| members.get(*at)) {
            match ill {
                Ill::Kill | Ill::Empty => member.kill()?,
                Ill::Stop => member.stop().await?,
                Ill::Freeze => member.freeze()?,
            }
        }
        self.ill = Some((which, ill));
        Ok(())
    }

    fn heal(&mut self) -> Result<()> {
        let Some((which, ill)) = self.ill.take() else { return Ok(()) };
        for at in which {
            let store = self.store.clone();
            self.healing.push(tokio::spawn(async move {
                let members = store.members();
                let member: &dyn Member = *members.get(at).ok_or("no such member")?;
                match ill {
                    Ill::Freeze => member.thaw(),
                    Ill::Empty => member.start_empty().await,
                    Ill::Kill | Ill::Stop => member.start_again().await,
                }
            }));
        }
        Ok(())
    }

    /// Adds what a caller counted before it is killed.
    async fn note_calls(&mut self, who: u32) {
        let Some(player) = self.players.get(&who).filter(|it| it.role == Role::Caller) else { return };
        match player.calls("show").await {
            Ok(calls) => {
                if !calls.reasons.is_empty() {
                    self.trace(&format!("calls of {} that failed: {}", player.id, calls.reasons));
                }
                self.calls.add(&calls);
            }
            Err(error) => {
                self.trace(&format!("{} does not say how its calls went: {error}", player.id));
                self.unheard += 1;
            }
        }
    }

    /// Adds what the callers counted that are still there, once every call that began so far has ended.
    pub(crate) async fn finish_callers(&mut self) {
        tokio::time::sleep(LAST_CALLS).await;
        let callers: Vec<_> = self.of(Role::Caller).map(|(who, _)| who).collect();
        for who in callers {
            self.note_calls(who).await;
        }
    }

    pub(crate) fn of(&self, role: Role) -> impl Iterator<Item = (u32, &Player)> {
        self.players
            .iter()
            .filter(move |(_, player)| player.role == role && !player.leaving)
            .map(|(who, it)| (*who, it))
    }

    /// Waits for those that leave in order, and says who did not.
    pub(crate) async fn dismiss(&mut self) -> Vec<String> {
        let leaving: Vec<_> = self.players.iter().filter(|(_, it)| it.leaving).map(|(who, _)| *who).collect();
        let (end, mut hang) = (tokio::time::Instant::now() + LEAVE, Vec::new());
        for who in leaving {
            let Some(player) = self.players.remove(&who) else { continue };
            while player.mate.process().is_running() {
                if tokio::time::Instant::now() > end {
                    hang.push(format!(
                        "{} (process {who}) does not leave: {}",
                        player.id,
                        player.mate.process().log_tail()
                    ));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        hang
    }
}
