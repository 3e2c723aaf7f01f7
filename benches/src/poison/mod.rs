//! Another client writes into our keys while everybody calls: all of it deleted, most of it, garbage, doubles, older records, an older
//! store, a store that forgot its past. After each everybody has to be right again without a call that failed; and when the service is
//! truly scaled to nothing, nobody may hold on to it.

mod writes;

use std::time::{Duration, Instant, SystemTime};

use crate::Result;
use crate::chaos::plan::{Event, Role};
use crate::chaos::stage::{ANSWER, Stage};
use crate::chaos::verdict::compare;
use crate::chaos::{BALLAST, PREFIX, SERVICE};
use crate::raw::{Raw, Records};
use crate::registry::Store;

const REGISTRARS: u32 = 10;
const WATCHERS: u32 = 3;
const CALLERS: u32 = 2;
/// Calls a second of each caller.
const RATE: u32 = 500;
/// How long everybody is left with it, and how long healing may take.
const STAYS: Duration = Duration::from_secs(2);
const HEALS: Duration = Duration::from_secs(30);
/// What no record is: no JSON, half of it, no record, one of another version of the layout, one without its endpoints.
const GARBAGE: [&str; 5] =
    ["?", "{\"v\":1,", "[1,2,3]", "{\"v\":99,\"id\":7}", "{\"v\":1,\"id\":\"r0\",\"service\":\"greeter\"}"];

pub(crate) async fn run(words: &[&str]) -> Result<()> {
    let names = match *words {
        ["--store", name] => vec![name],
        [] => vec!["etcd", "zookeeper", "redis"],
        _ => return Err(format!("poison takes --store etcd, zookeeper or redis, and not {words:?}").into()),
    };
    for name in names {
        if !["etcd", "zookeeper", "redis"].contains(&name) {
            return Err(format!("there is no poison for {name}").into());
        }
        let Some(store) = Store::start(name).await? else { continue };
        let folder = tempfile::tempdir()?;
        let stage = Stage::new(store, RATE, folder.path().to_owned());
        Poison { name, stage, version: 0 }.play().await?;
    }
    Ok(())
}

struct Poison<'a> {
    name: &'a str,
    stage: Stage,
    version: u32,
}

/// What can be written while the store goes on.
#[derive(Debug, Clone, Copy)]
enum Scene {
    Empty,
    NinetyPercent,
    Garbage,
    Doubled,
    Older,
    Compacted,
    Restored,
}

impl Poison<'_> {
    async fn play(mut self) -> Result<()> {
        for (role, count, from) in
            [(Role::Registrar, REGISTRARS, 0), (Role::Watcher, WATCHERS, 100), (Role::Caller, CALLERS, 200)]
        {
            for who in from..from + count {
                let id = format!("{}{who}", ["r", "w", "c"][role as usize]);
                self.happen(Event::Start { who, role, id, version: 0 }).await?;
            }
        }
        self.healed("start").await?;
        tokio::time::sleep(STAYS).await;
        use Scene::{Compacted, Doubled, Empty, Garbage, NinetyPercent, Older, Restored};
        for scene in [Empty, NinetyPercent, Garbage, Doubled, Older, Compacted, Restored] {
            self.scene(scene).await?;
        }
        self.scale_to_zero().await
    }

    async fn happen(&mut self, event: Event) -> Result<()> {
        self.stage.happen(&event).await
    }

    fn print(&self, figure: &str, value: impl std::fmt::Display, unit: &str) {
        println!("poison.{}.{figure} {value} {unit}", self.name);
    }

    async fn scene(&mut self, scene: Scene) -> Result<()> {
        let name = format!("{scene:?}").to_lowercase();
        self.stage.trace(&name);
        let before = self.failed(None).await?;
        let mut records = self.records().await?;
        if matches!(scene, Scene::Older | Scene::Restored) {
            let backup = match scene {
                Scene::Restored => {
                    self.member().kill()?;
                    let backup = self.member().back_up()?;
                    self.member().start_again().await?;
                    Some(backup)
                }
                _ => None,
            };
            // What is brought back is older than what is.
            self.version += 1;
            for who in 0..REGISTRARS {
                self.happen(Event::Update(who, self.version)).await?;
            }
            self.healed(&format!("{name}_updated")).await?;
            if let Some(backup) = backup {
                self.member().kill()?;
                self.member().start_from(&backup).await?;
            }
        }
        let least = self.poison(scene, &mut records).await?;
        self.print(&format!("{name}_fewest_seen"), least, "instances of 10");
        self.healed(&name).await?;
        self.print(&format!("{name}_failed"), self.failed(None).await? - before, "calls");
        Ok(())
    }

    fn member(&self) -> &dyn crate::registry::Member {
        self.stage.store.members()[0]
    }

    async fn raw(&self) -> Result<Raw<'_>> {
        Raw::open(&self.stage.store, PREFIX, SERVICE).await
    }

    async fn records(&self) -> Result<[Records; 2]> {
        let raw = self.raw().await?;
        Ok([raw.records(PREFIX, SERVICE).await?, raw.records(PREFIX, BALLAST).await?])
    }

    /// Does it, and says the fewest instances that a watcher showed meanwhile.
    async fn poison(&self, scene: Scene, records: &mut [Records; 2]) -> Result<usize> {
        let raw = self.raw().await?;
        match scene {
            Scene::Empty => raw.wipe(&[SERVICE, BALLAST]).await?,
            Scene::NinetyPercent => {
                for records in records.iter() {
                    let most = records.len() * 9 / 10;
                    raw.delete(&records.iter().take(most).map(|(key, _)| key.as_str()).collect::<Vec<_>>()).await?;
                }
            }
            Scene::Garbage => {
                for (number, (key, _)) in records.iter().flatten().enumerate() {
                    raw.put(key, GARBAGE[number % GARBAGE.len()]).await?;
                }
            }
            Scene::Doubled => {
                raw.double(SERVICE, &records[0]).await?;
                raw.double(BALLAST, &records[1]).await?;
            }
            Scene::Older => {
                for (key, value) in records.iter().flatten() {
                    raw.put(key, value).await?;
                }
            }
            Scene::Compacted => writes::compact(&self.stage.store).await?,
            Scene::Restored => {}
        }
        let (begun, mut least) = (Instant::now(), usize::MAX);
        while begun.elapsed() < STAYS {
            for (size, _) in self.sizes().await? {
                least = least.min(size);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if matches!(scene, Scene::Doubled) {
            raw.undouble(SERVICE, &records[0]).await?;
            raw.undouble(BALLAST, &records[1]).await?;
        }
        Ok(least)
    }

    /// How many instances of both services each watcher and each caller sees; callers watch only one.
    async fn sizes(&self) -> Result<Vec<(usize, usize)>> {
        let mut sizes = Vec::new();
        for (_, player) in self.stage.of(Role::Watcher) {
            let shown = player.mate.ask("sizes", ANSWER).await?;
            let mut words = shown.split(' ').map(|it| it.parse().unwrap_or(usize::MAX));
            sizes.push((words.next().unwrap_or(usize::MAX), words.next().unwrap_or(usize::MAX)));
        }
        for (_, player) in self.stage.of(Role::Caller) {
            sizes.push((usize::try_from(player.calls("show").await?.size)?, 0));
        }
        Ok(sizes)
    }

    async fn healed(&self, name: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let wrong = compare(&self.stage).await;
            if wrong.is_empty() {
                break;
            }
            if begun.elapsed() > HEALS {
                return Err(format!("{name} is not healed after {HEALS:?}: {wrong:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.print(&format!("{name}_healed"), format!("{:.2}", begun.elapsed().as_secs_f64()), "s");
        Ok(())
    }

    /// The calls that failed of those that began before a moment.
    async fn failed(&self, before: Option<SystemTime>) -> Result<u64> {
        let since = |it: SystemTime| it.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let question = before.map_or("show".to_owned(), |it| format!("show {}", since(it)));
        let mut failed = 0;
        for (_, player) in self.stage.of(Role::Caller) {
            let calls = player.calls(&question).await?;
            failed += calls.failed;
            if calls.failed > 0 {
                self.stage.trace(&format!("{} calls failed: {}", calls.failed, calls.reasons));
            }
        }
        Ok(failed)
    }

    /// Everybody deregisters in order: the brake is for what looks like an accident.
    async fn scale_to_zero(&mut self) -> Result<()> {
        for who in 0..REGISTRARS {
            self.happen(Event::Drain(who)).await?;
        }
        // The last moment at which the store was seen to have a record lies before the last deregistration.
        let (mut gone, mut wall) = (Instant::now(), SystemTime::now());
        loop {
            let looked = (Instant::now(), SystemTime::now());
            if self.records().await?.iter().all(Vec::is_empty) {
                break;
            }
            (gone, wall) = looked;
            if self.sizes().await?.iter().all(|sizes| *sizes == (0, 0)) {
                break;
            }
        }
        while self.sizes().await?.iter().any(|sizes| *sizes != (0, 0)) {
            if gone.elapsed() > HEALS {
                return Err(format!("not all sets are empty: {:?}", self.sizes().await?).into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let took = gone.elapsed();
        self.stage.finish_callers().await;
        self.print("failed_calls", self.failed(Some(wall)).await?, "calls");
        self.print("excused_calls", self.stage.calls.excused, "calls");
        self.print("calls", self.stage.calls.calls, "calls");
        self.print("longest_call", format!("{:.2}", self.stage.calls.longest as f64 / 1e3), "s");
        self.print("scale_to_zero_s", format!("{:.2}", took.as_secs_f64()), "s");
        match self.stage.dismiss().await {
            hang if hang.is_empty() => Ok(()),
            hang => Err(hang.join("; ").into()),
        }
    }
}
