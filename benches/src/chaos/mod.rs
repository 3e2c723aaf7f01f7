//! Processes that register, watch and call, a real store, and everything that happens to both, drawn from a seed.
//!
//! After each round all faults end, and everybody has to agree within [`SETTLE`]: what the store holds, read past this project, every
//! watcher's set, and what the parent knows to live.

pub(crate) mod plan;
pub(crate) mod roles;
pub(crate) mod stage;
pub(crate) mod verdict;

use std::time::Duration;

use crate::Result;
use crate::registry::{NAMES, Store};
use stage::Stage;
use verdict::Totals;

/// What is served and called.
pub(crate) const SERVICE: &str = "greeter";
/// What nobody calls: further registrations of each registrar, on the same lease.
pub(crate) const BALLAST: &str = "ballast";
const BALLAST_EACH: usize = 4;
/// What everything lies under.
pub(crate) const PREFIX: &str = "chaos";
/// Calls a second of each caller.
const RATE: u32 = 50;
/// How long the end of all faults may take to be the same for everybody: several times what the options of the URL add up to, as the
/// machine is busy.
const SETTLE: Duration = Duration::from_secs(30);
/// A round with its settling, as planned for.
const ROUND_AND_SETTLE: f64 = 30.0;

struct Options {
    store: String,
    minutes: f64,
    seed: u64,
    /// Where the logs of the processes stay.
    logs: Option<std::path::PathBuf>,
}

impl Options {
    fn read(words: &[&str]) -> Result<Self> {
        let mut options = Self { store: "etcd".to_owned(), minutes: 2.0, seed: 0, logs: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} lacks its value"));
            match *word {
                "--store" => options.store = (*value()?).to_owned(),
                "--minutes" => options.minutes = value()?.parse()?,
                "--seed" => options.seed = value()?.parse()?,
                "--logs" => options.logs = Some(value()?.into()),
                other => return Err(format!("chaos does not know {other}").into()),
            }
        }
        if !NAMES.contains(&&*options.store) {
            return Err(format!("there is no store {}; known are: {}", options.store, NAMES.join(", ")).into());
        }
        Ok(options)
    }
}

pub(crate) async fn run(words: &[&str]) -> Result<()> {
    let Options { store: name, minutes, seed, logs } = Options::read(words)?;
    let Some(store) = Store::start(&name).await? else { return Ok(()) };
    let limits = plan::Limits {
        members: store.members().len(),
        wires: store.takes_proxies(),
        // A member without its data is no member any more in a cluster of etcd or Redis.
        emptied: matches!(store, Store::Etcd(_) | Store::ZooKeeper(_) | Store::Redis(_)),
    };
    let rounds = plan::rounds(seed, (minutes * 60.0 / ROUND_AND_SETTLE).ceil() as u32, limits);
    let folder = tempfile::tempdir()?;
    let logs = logs.unwrap_or_else(|| folder.path().to_owned());
    std::fs::create_dir_all(&logs)?;
    let mut stage = Stage::new(store, RATE, logs);
    let mut totals = Totals::default();
    for (number, round) in rounds.iter().enumerate() {
        stage.trace(&format!("round {number} of seed {seed}"));
        stage.play(round).await?;
        totals.settle(&mut stage).await?;
    }
    stage.finish_callers().await;
    totals.print(&name, &stage, rounds.len());
    Ok(())
}
