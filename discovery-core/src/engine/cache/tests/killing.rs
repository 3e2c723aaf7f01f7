//! A process that writes without a pause is killed again and again.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use super::{DAY, Folder, Label, Page, Snapshot, bytes, label, names, set};
use crate::Instance;

/// How a process of this test binary is told that it is the writer, and where it writes.
const WRITER: &str = "DISCOVERY_TEST_CACHE_WRITER";
/// Instances in the set of weight 1; the others have twice and three times as many.
const INSTANCES: u32 = 20;
/// Bytes of each record: large enough that a kill falls into the middle of a write.
const RECORD: usize = 50_000;
const WEIGHTS: RangeInclusive<u32> = 1..=3;
const KILLS: u64 = 30;
/// Within this the process has begun, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// No test by itself: the process that the next one starts from this binary, and kills. It finds the pages that it is to write.
#[test]
fn a_writer_to_be_killed() {
    let Ok(path) = std::env::var(WRITER) else { return };
    let (folder, pay) = (Folder::new(Path::new(&path).join("sets"), DAY), label("pay"));
    let pages: Vec<_> = WEIGHTS.map(|weight| fs::read(Path::new(&path).join(weight.to_string())).unwrap()).collect();
    let end = Instant::now() + PATIENCE;
    for page in pages.iter().cycle() {
        folder.write(&pay, page).unwrap();
        if Instant::now() > end {
            return;
        }
    }
}

fn large(weight: u32) -> Snapshot {
    let mut large = set("pay", INSTANCES * weight, weight);
    let padded = |instance: &Arc<Instance>| instance.to_builder().metadata("padding", "x".repeat(RECORD)).build();
    large.instances = large.instances.iter().map(|instance| Arc::new(padded(instance).unwrap())).collect();
    large
}

fn read(folder: &Folder, pay: &Label) -> Option<(usize, u32)> {
    let bytes = folder.read(pay).unwrap()?;
    let set = Page::<Snapshot>::read(&bytes, pay).unwrap_or_else(|error| panic!("half a file: {error}")).view;
    let weights: BTreeSet<_> = set.instances.iter().map(|instance| instance.weight()).collect();
    assert_eq!(weights.len(), 1, "sets are mixed: {weights:?}");
    Some((set.len(), *weights.first().unwrap()))
}

#[test]
fn whenever_a_writer_is_killed_the_file_is_whole() {
    let directory = tempdir().unwrap();
    let (folder, pay) = (Folder::new(directory.path().join("sets"), DAY), label("pay"));
    for weight in WEIGHTS {
        fs::write(directory.path().join(weight.to_string()), bytes(&pay, &large(weight))).unwrap();
    }
    let length = || fs::metadata(folder.path().join(pay.file_name())).map(|about| about.len()).ok();
    let mut seen = BTreeSet::new();
    for round in 0..KILLS {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "engine::cache::tests::killing::a_writer_to_be_killed"]).env(WRITER, directory.path());
        let before = length();
        let mut writer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // It is killed at another moment of its writing each time.
        let end = Instant::now() + PATIENCE;
        while length() == before && Instant::now() < end {
            std::thread::yield_now();
        }
        let more = Instant::now() + Duration::from_micros(round * 700);
        while Instant::now() < more {
            std::thread::yield_now();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        let (count, weight) = read(&folder, &pay).expect("a set that was written before");
        assert_eq!(count, (INSTANCES * weight) as usize);
        seen.insert(weight);
    }
    assert!(seen.len() > 1, "it was always killed after the same write");
    let left = names(&folder).into_iter().filter(|name| name.ends_with(".tmp")).count();
    assert!(left > 0, "no kill fell into a write, so the test showed nothing");
    assert!(left <= KILLS as usize);
}
