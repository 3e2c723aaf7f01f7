//! What happened, step by step, as text that is the same for the same seed.

use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

/// Whether the lines of a trace are kept, or only their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The hash alone.
    Hash,
    /// The hash and every line.
    Lines,
}

/// Lines of one moment are sorted: several tasks that one event wakes run in an order that tokio draws, and none of them depends on it.
pub(super) struct Trace {
    keep: Keep,
    now: Duration,
    moment: Vec<String>,
    hash: Xxh3,
    lines: Vec<String>,
}

impl Trace {
    pub(super) fn new(keep: Keep) -> Self {
        Self { keep, now: Duration::ZERO, moment: Vec::new(), hash: Xxh3::new(), lines: Vec::new() }
    }

    pub(super) fn say(&mut self, now: Duration, line: String) {
        if now != self.now {
            self.flush();
            self.now = now;
        }
        self.moment.push(line);
    }

    fn flush(&mut self) {
        self.moment.sort();
        for line in self.moment.drain(..) {
            let line = format!("{:>8.3} {line}", self.now.as_secs_f64());
            self.hash.update(line.as_bytes());
            self.hash.update(b"\n");
            if self.keep == Keep::Lines {
                self.lines.push(line);
            }
        }
    }

    /// The hash of all lines, and the lines if they were kept.
    pub(super) fn finish(mut self) -> (u64, Vec<String>) {
        self.flush();
        (self.hash.digest(), self.lines)
    }
}
