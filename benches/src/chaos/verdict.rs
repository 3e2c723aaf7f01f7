//! Whether everybody agrees once everything is healed, and the sum of all rounds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::plan::Role;
use super::stage::{ANSWER, Stage};
use super::{BALLAST, BALLAST_EACH, PREFIX, SERVICE, SETTLE};
use crate::Result;
use crate::raw::Raw;

/// What is right has to stay so for a while: a ghost comes back later.
const STAYS: Duration = Duration::from_secs(2);

/// Ids and what their records say, each as often as it is found.
type Set = BTreeMap<String, Vec<String>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A watcher's set is not live, or not the store's, or not what lives.
    Set,
    /// A registration that lives is not in the store, or not as last updated.
    Lost,
    /// A record that nobody holds.
    Ghost,
    /// A process does not say what is so, or does not end.
    State,
}

#[derive(Debug, Default)]
pub(crate) struct Totals {
    sets: usize,
    lost: usize,
    ghosts: usize,
    states: usize,
    longest: Duration,
    compared: usize,
}

impl Totals {
    /// Waits until everybody agrees, and counts what is wrong when the time is over.
    pub(crate) async fn settle(&mut self, stage: &mut Stage) -> Result<()> {
        let begun = Instant::now();
        let mut hang: Vec<_> = stage.dismiss().await.into_iter().map(|what| (Fault::State, what)).collect();
        let mut right_since = None;
        let mut wrong;
        loop {
            wrong = compare(stage).await;
            match (wrong.is_empty(), right_since) {
                (true, None) => right_since = Some(Instant::now()),
                (true, Some(since)) if since.elapsed() > STAYS => break,
                (true, Some(_)) => {}
                (false, Some(_)) => {
                    stage.trace(&format!("what was right did not stay so: {wrong:?}"));
                    right_since = None;
                }
                (false, None) => {}
            }
            if begun.elapsed() > SETTLE && right_since.is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        wrong.append(&mut hang);
        self.compared += stage.of(Role::Watcher).count() * 2;
        let count = |fault| wrong.iter().filter(|(kind, _)| *kind == fault).count();
        self.sets += count(Fault::Set);
        self.lost += count(Fault::Lost);
        self.ghosts += count(Fault::Ghost);
        self.states += count(Fault::State);
        let took = right_since.unwrap_or_else(Instant::now).duration_since(begun);
        self.longest = self.longest.max(took);
        stage.trace(&format!("settled after {:.2} s, {} wrong", took.as_secs_f64(), wrong.len()));
        for (fault, what) in &wrong {
            stage.trace(&format!("WRONG {fault:?}: {what}"));
        }
        Ok(())
    }

    pub(crate) fn print(&self, store: &str, stage: &Stage, rounds: usize) {
        let print = |figure: &str, value: &dyn std::fmt::Display, unit: &str| {
            println!("chaos.{store}.{figure} {value} {unit}");
        };
        print("rounds", &rounds, "rounds");
        for (what, count) in &stage.done {
            print(what, count, "times");
        }
        print("sets_compared", &self.compared, "sets");
        print("calls", &stage.calls.calls, "calls");
        print("excused_calls", &stage.calls.excused, "calls");
        print("longest_call", &format!("{:.2}", stage.calls.longest as f64 / 1e3), "s");
        print("wrong_sets_after_settle", &self.sets, "sets");
        print("lost_registrations", &self.lost, "registrations");
        print("ghosts", &self.ghosts, "records");
        print("wrong_states", &(self.states + stage.unheard), "processes");
        print("failed_calls", &stage.calls.failed, "calls");
        print("max_converge_s", &format!("{:.2}", self.longest.as_secs_f64()), "s");
    }
}

/// What is wrong right now.
pub(crate) async fn compare(stage: &Stage) -> Vec<(Fault, String)> {
    let mut wrong = Vec::new();
    let [mut served, mut ballast] = [Set::new(), Set::new()];
    for (id, (_, version)) in &stage.living {
        served.insert(id.clone(), vec![version.to_string()]);
        for number in 0..BALLAST_EACH {
            ballast.insert(format!("{id}-{number}"), vec![version.to_string()]);
        }
    }
    let living = [(SERVICE, served), (BALLAST, ballast)];
    for (service, living) in &living {
        match stored(stage, service).await {
            Ok(stored) => differ(living, &stored, &mut wrong),
            Err(error) => wrong.push((Fault::Lost, format!("the store cannot be read: {error}"))),
        }
    }
    for (who, player) in stage.of(Role::Watcher) {
        let shown = match player.mate.ask("show", ANSWER).await {
            Ok(shown) => shown,
            Err(error) => {
                wrong.push((Fault::Set, format!("watcher {who}: {error}")));
                continue;
            }
        };
        let mut sets = shown.split('|');
        for (service, living) in &living {
            let shown = sets.next().unwrap_or("nothing");
            let seen = shown.strip_prefix("live ").map(|set| {
                let pairs = set.split(' ').filter_map(|pair| pair.split_once('='));
                pairs.map(|(id, version)| (id.to_owned(), vec![version.to_owned()])).collect::<Set>()
            });
            if seen.as_ref() != Some(living) {
                wrong.push((Fault::Set, format!("watcher {who} sees {service} as {shown}, and {living:?} lives")));
            }
        }
    }
    for (who, player) in stage.of(Role::Caller) {
        match player.calls("show").await {
            Ok(calls) if calls.size == living[0].1.len() as u64 && calls.calls > 0 => {}
            Ok(calls) => {
                wrong.push((Fault::State, format!("caller {who} sees {} and made {}", calls.size, calls.calls)))
            }
            Err(error) => wrong.push((Fault::State, format!("caller {who}: {error}"))),
        }
    }
    for (who, player) in stage.of(Role::Registrar) {
        match player.mate.ask("show", ANSWER).await {
            Ok(state) if state == "registered" => {}
            Ok(state) => wrong.push((Fault::State, format!("{} (process {who}) is {state}", player.id))),
            Err(error) => wrong.push((Fault::State, format!("{} (process {who}): {error}", player.id))),
        }
    }
    wrong
}

/// What the store has, read past this project.
async fn stored(stage: &Stage, service: &str) -> Result<Set> {
    let mut set = Set::new();
    for (key, value) in Raw::open(&stage.store, PREFIX, service).await?.records(PREFIX, service).await? {
        // ZooKeeper: left to a former owner by whoever took its id over; no record.
        if value == "superseded" {
            continue;
        }
        let record: serde_json::Value = serde_json::from_str(&value).map_err(|error| format!("{key}: {error}"))?;
        let text = |field: &str| record.get(field).and_then(|it| it.as_str()).unwrap_or("?").to_owned();
        set.entry(text("id")).or_default().push(text("version"));
    }
    Ok(set)
}

fn differ(living: &Set, stored: &Set, wrong: &mut Vec<(Fault, String)>) {
    for (id, version) in living {
        if stored.get(id) != Some(version) {
            wrong.push((
                Fault::Lost,
                format!("{id} lives in version {version:?}, and the store has {:?}", stored.get(id)),
            ));
        }
    }
    for (id, versions) in stored.iter().filter(|(id, _)| !living.contains_key(*id)) {
        wrong.push((Fault::Ghost, format!("the store has {id} in {versions:?}, which nobody holds")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(records: &[(&str, &[&str])]) -> Set {
        let texts = |versions: &&[&str]| versions.iter().map(|&it| it.to_owned()).collect();
        records.iter().map(|(id, versions)| ((*id).to_owned(), texts(versions))).collect()
    }

    #[test]
    fn what_is_missing_old_doubled_or_too_much_is_told() {
        let living = set(&[("a", &["3"]), ("b", &["1"])]);
        let found = |stored: Set| {
            let mut wrong = Vec::new();
            differ(&living, &stored, &mut wrong);
            wrong.into_iter().map(|(fault, _)| fault).collect::<Vec<_>>()
        };
        assert_eq!(found(living.clone()), []);
        assert_eq!(found(set(&[("a", &["3"])])), [Fault::Lost]);
        assert_eq!(found(set(&[("a", &["2"]), ("b", &["1"])])), [Fault::Lost]);
        assert_eq!(found(set(&[("a", &["3"]), ("b", &["1", "1"])])), [Fault::Lost]);
        assert_eq!(found(set(&[("a", &["3"]), ("b", &["1"]), ("c", &["1"])])), [Fault::Ghost]);
    }
}
