//! A client that calls all the time, as a process of its own.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use discovery_core::picker::PowerOfTwo;
use discovery_tonic::Channel;
use tempfile::TempDir;
use tracing_subscriber::filter::LevelFilter;

use crate::Result;
use crate::calls::{End, Load, Report};
use crate::deploy::SERVICE;
use crate::process::Process;

/// How often it tells what became of its calls. A process that is killed takes as much with it.
const TELL: Duration = Duration::from_millis(100);

/// What the process does: calls, says which servers it knows, `members <id> …`, and writes into a file how each call ended.
pub(crate) async fn call(url: &str, rate: u32, file: &str) -> Result<()> {
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_ansi(false).init();
    let mut file = BufWriter::new(File::create(file)?);
    let backend = crate::connect(url)?;
    let channel = Channel::builder(backend.watch(SERVICE), PowerOfTwo).build();
    let load = Load::start(&channel, rate);
    let mut last = Vec::new();
    loop {
        tokio::time::sleep(TELL).await;
        for end in load.drain() {
            writeln!(file, "{}", line(&end))?;
        }
        file.flush()?;
        let members = channel.balancer().members();
        let now: Vec<_> = members.iter().map(|member| member.instance().id().to_owned()).collect();
        if last != now {
            std::io::stdout().lock().write_all(format!("members {}\n", now.join(" ")).as_bytes())?;
            last = now;
        }
    }
}

/// When the call began in microseconds of the machine's clock, how many it took, and why it failed.
fn line(end: &End) -> String {
    let begun = SystemTime::now() - end.begun.elapsed();
    let begun = begun.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    format!("{begun} {} {}", end.took.as_micros(), end.failure.as_deref().unwrap_or_default().replace('\n', " "))
}

/// How a call of another process ended.
pub(super) struct Call {
    begun: SystemTime,
    took: Duration,
    pub(super) failure: Option<String>,
}

/// What became of the calls that began between two moments.
pub(super) fn report(calls: &[Call], from: SystemTime, until: SystemTime) -> Report {
    let all = calls.iter().filter(|call| (from..until).contains(&call.begun));
    Report::of(all.map(|call| (call.took, call.failure.as_deref())))
}

/// The process.
pub(super) struct Caller {
    started: SystemTime,
    process: Process,
    file: PathBuf,
    _folder: TempDir,
}

impl Caller {
    pub(super) fn start(url: &str, rate: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("calls");
        let started = SystemTime::now();
        let process = Process::start(&["call", url, &rate.to_string(), &file.to_string_lossy()])?;
        Ok(Self { started, process, file, _folder: folder })
    }

    pub(super) fn started(&self) -> SystemTime {
        self.started
    }

    /// From the start of the process to its first answer.
    pub(super) fn first_answer(&self) -> Result<Duration> {
        let calls = self.calls()?;
        let answers = calls.iter().filter(|call| call.failure.is_none()).map(|call| call.begun + call.took);
        let first = answers.min().ok_or("a client never had an answer")?;
        Ok(first.duration_since(self.started)?)
    }

    pub(super) fn kill(&self) -> Result<()> {
        self.process.server().kill()?;
        Ok(())
    }

    pub(super) fn rss(&self) -> Result<f64> {
        self.process.rss()
    }

    /// Waits until it knows these servers, and no others.
    pub(super) async fn sees(&self, servers: &[&str], limit: Duration) -> Result<()> {
        self.process.says("members", &servers.join(" "), limit).await
    }

    /// How its calls ended, as far as it told; the last line of one that was killed may be half a line.
    pub(super) fn calls(&self) -> Result<Vec<Call>> {
        let text = std::fs::read_to_string(&self.file)?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| parse(line).ok_or_else(|| format!("no call: {line:?}").into())).collect()
    }
}

fn parse(line: &str) -> Option<Call> {
    let mut words = line.splitn(3, ' ');
    let mut micros = || Some(Duration::from_micros(words.next()?.parse().ok()?));
    let (begun, took) = (UNIX_EPOCH + micros()?, micros()?);
    let failure = words.next().filter(|failure| !failure.is_empty()).map(str::to_owned);
    Some(Call { begun, took, failure })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_told_is_what_is_read() {
        let end = |failure| End { begun: Instant::now(), took: Duration::from_micros(1_500), failure };
        let calls: Vec<_> =
            [None, Some("no\nservers".to_owned())].map(|failure| parse(&line(&end(failure))).unwrap()).into();
        assert_eq!(calls[1].failure.as_deref(), Some("no servers"));
        let now = SystemTime::now();
        let report = report(&calls, now - Duration::from_secs(1), now + Duration::from_secs(1));
        assert_eq!((report.calls, report.failed(), report.quantile(0.5)), (2, 1, 1.5));
        assert!(parse("1 ").is_none());
    }
}
