//! Redis' MONITOR, which tells of every command as it is run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::Reading;
use crate::Result;

/// Commands whose answer has no bound (L4), beside ranges without a limit.
const UNBOUNDED: [&str; 5] = ["keys", "scan", "smembers", "hgetall", "hkeys"];

/// Written by the task that listens. They are figures, and nothing hangs on their order.
#[derive(Debug, Default)]
struct Counts {
    changes: AtomicU64,
    requests: AtomicU64,
    unbounded: AtomicU64,
    ended: AtomicBool,
}

pub(crate) struct Monitor {
    counts: Arc<Counts>,
    listening: JoinHandle<()>,
}

impl Monitor {
    pub(super) async fn start(server: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(b"MONITOR\r\n").await?;
        let mut lines = BufReader::new(stream).split(b'\n');
        match lines.next_segment().await? {
            Some(answer) if answer.starts_with(b"+OK") => {}
            other => return Err(format!("no monitor: {:?}", other.map(|line| line.escape_ascii().to_string())).into()),
        }
        let counts = Arc::<Counts>::default();
        let sink = counts.clone();
        let listening = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_segment().await {
                sink.count(&String::from_utf8_lossy(&line));
            }
            sink.ended.store(true, Ordering::Relaxed);
        });
        Ok(Self { counts, listening })
    }

    pub(super) fn read(&self) -> Result<Reading> {
        if self.counts.ended.load(Ordering::Relaxed) {
            return Err("the server cut the monitor off".into());
        }
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(Reading { writes: get(&self.counts.changes), requests: get(&self.counts.requests) })
    }

    /// How many commands had no bound.
    pub(crate) fn unbounded(&self) -> u64 {
        self.counts.unbounded.load(Ordering::Relaxed)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Counts {
    /// Takes a line such as `+1700000000.1 [0 127.0.0.1:9] "ping"`; what a script does says `lua` in the place of the client.
    fn count(&self, line: &str) {
        let Some((who, command)) = line.split_once("] \"") else { return };
        let name = command.split('"').next().unwrap_or_default().to_ascii_lowercase();
        let add = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        let whole = name == "zrangebyscore" && !command.contains("\"LIMIT\"");
        if whole || UNBOUNDED.contains(&name.as_str()) {
            add(&self.unbounded);
        }
        if who.ends_with(" lua") {
            // Every change of a record is told once, whatever it takes to make it; the list of services is another matter.
            if (name == "publish" || name == "spublish") && !command.contains(":names:changes\"") {
                add(&self.changes);
            }
        } else {
            add(&self.requests);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_does_is_no_request() {
        let counts = Counts::default();
        for line in [
            r#"+1.5 [0 127.0.0.1:9] "evalsha" "ab" "1" "{d/s}" "write" "7" "PUBLISH" "x" "] \"keys\"""#,
            r#"+1.5 [0 lua] "PUBLISH" "{d/s}:changes" "0 1 put""#,
            r#"+1.5 [0 lua] "PUBLISH" "{d}:names:changes" "0 1 put""#,
            r#"+1.5 [0 lua] "SET" "k" "v""#,
            r#"+1.5 [0 127.0.0.1:9] "KEYS" "*""#,
            r#"+1.5 [0 127.0.0.1:9] "ZRANGEBYSCORE" "k" "(7" "+inf" "WITHSCORES" "LIMIT" "0" "500""#,
            r#"+1.5 [0 lua] "ZRANGEBYSCORE" "k" "-inf" "+inf""#,
        ] {
            counts.count(line);
        }
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!([get(&counts.changes), get(&counts.requests), get(&counts.unbounded)], [1, 3, 2]);
    }
}
