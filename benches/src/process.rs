//! This program again, as a process of its own, and what it costs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use discovery_harness::ServerProcess;
use tempfile::TempDir;

use crate::Result;

/// One that runs until it is dropped.
pub(crate) struct Process {
    server: ServerProcess,
    log: PathBuf,
    _folder: TempDir,
}

impl Process {
    pub(crate) fn start(arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let log = folder.path().join("log");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        Ok(Self { server: ServerProcess::spawn(&command, &log)?, log, _folder: folder })
    }

    /// To be killed, frozen and asked to stop.
    pub(crate) fn server(&self) -> &ServerProcess {
        &self.server
    }

    /// Everything that it printed.
    pub(crate) fn printed(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// What it printed last behind a word at the beginning of a line.
    pub(crate) fn last(&self, word: &str) -> Result<Option<String>> {
        let printed = self.printed()?;
        // A line that is still being written does not count.
        let whole = printed.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let said = whole.lines().rev().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        Ok(said.map(|rest| rest.trim().to_owned()))
    }

    /// Waits until that is so.
    pub(crate) async fn says(&self, word: &str, wanted: &str, limit: Duration) -> Result<()> {
        let end = tokio::time::Instant::now() + limit;
        while self.last(word)?.as_deref() != Some(wanted) {
            if tokio::time::Instant::now() > end || !self.server.is_running() {
                return Err(format!("it did not say `{word} {wanted}` in {limit:?}: {}", self.server.log_tail()).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// The processor time that it has used.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.server.pid()))?;
        let fields: Vec<_> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        // utime and stime, in ticks of 10 ms on every Linux that this runs on.
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).ok_or("no processor time");
        Ok(Duration::from_millis(10 * (ticks(11)? + ticks(12)?)))
    }

    /// The memory that it occupies, in MiB.
    pub(crate) fn rss(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }
}
