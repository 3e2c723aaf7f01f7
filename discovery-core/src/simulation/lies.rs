//! What is wrong between a client and the store, and what that does to each request and notification.

use std::time::Duration;

use fastrand::Rng;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ErrorKind;

/// How a client's connections behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// They work.
    Works,
    /// They are refused, and those that were open broke.
    Refused,
    /// They stay open and nothing answers.
    Silent,
}

/// What the store refuses, for a reason that only a person can mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// Nothing.
    Nothing,
    /// Sets and digests.
    Reads,
    /// Records.
    Writes,
    /// Connections.
    Everything,
}

/// The chance of each fault in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lossy {
    /// A notification never arrives.
    pub lost: u8,
    /// It arrives again later.
    pub doubled: u8,
    /// It arrives seconds late, behind later ones.
    pub late: u8,
}

/// How far in the past reads are answered from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// How old the answers are.
    pub by: Duration,
    /// Whether a subscription that begins there gets what changed since; otherwise it gets only what changes from now on.
    pub catches_up: bool,
}

/// What is wrong between one client and the store right now.
#[derive(Debug, Clone)]
pub(super) struct Lies {
    pub(super) wire: Wire,
    pub(super) denial: Denial,
    pub(super) lossy: Lossy,
    pub(super) lag: Option<Lag>,
    /// The chance in percent that a request fails in one way or another.
    pub(super) flaky: u8,
}

impl Lies {
    pub(super) const NONE: Self = Self {
        wire: Wire::Works,
        denial: Denial::Nothing,
        lossy: Lossy { lost: 0, doubled: 0, late: 0 },
        lag: None,
        flaky: 0,
    };
}

/// What is asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Connect,
    Ping,
    Grant,
    Renew,
    Audit,
    Revoke,
    Write,
    Remove,
    Open,
    Read,
    Digest,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fate {
    /// When it reaches the store; `None` for never.
    pub(super) arrives: Option<Duration>,
    pub(super) answer: Answer,
    /// How long the answer takes.
    pub(super) back: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Truly,
    Never,
    Error(ErrorKind),
}

/// A source of chance for one thing that happens, the same whatever else happens and in whatever order.
pub(super) fn chance(seed: u64, what: &str) -> Rng {
    Rng::with_seed(xxh3_64_with_seed(what.as_bytes(), seed))
}

pub(super) fn percent(rng: &mut Rng, of: u8) -> bool {
    rng.u8(0..100) < of
}

pub(super) fn millis(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.u64(from..=to))
}

impl Lies {
    /// Decides what becomes of a request; `left` is how long faults go on, `late` how late a write may be.
    pub(super) fn fate(&self, verb: Verb, rng: &mut Rng, left: Duration, late: Duration) -> Fate {
        let honest = Fate { arrives: Some(millis(rng, 1, 3)), answer: Answer::Truly, back: millis(rng, 1, 3) };
        let denied = match self.denial {
            Denial::Nothing => None,
            Denial::Reads => {
                matches!(verb, Verb::Open | Verb::Read | Verb::Digest).then_some(ErrorKind::PermissionDenied)
            }
            Denial::Writes => (verb == Verb::Write).then_some(ErrorKind::PermissionDenied),
            Denial::Everything => Some(ErrorKind::Unauthenticated),
        };
        if let Some(kind) = denied {
            return Fate { arrives: None, answer: Answer::Error(kind), ..honest };
        }
        if !percent(rng, self.flaky) {
            return honest;
        }
        let kind = [ErrorKind::Unavailable, ErrorKind::Unavailable, ErrorKind::Exhausted, ErrorKind::Internal]
            [rng.usize(0..4)];
        let latest = if verb == Verb::Write { left.min(late) } else { left };
        let late = millis(rng, 200, 7_000).min(latest);
        let slow = millis(rng, 50, 1_500).min(left);
        match rng.u8(0..6) {
            0 => Fate { arrives: None, answer: Answer::Error(kind), ..honest },
            1 => Fate { answer: Answer::Error(ErrorKind::Unavailable), ..honest },
            2 => Fate { arrives: None, answer: Answer::Never, ..honest },
            3 => Fate { answer: Answer::Never, ..honest },
            4 => Fate { arrives: Some(late), ..honest },
            _ => Fate { arrives: Some(slow), back: slow, ..honest },
        }
    }

    /// When a notification arrives: not at all, once or again.
    pub(super) fn arrivals(&self, rng: &mut Rng, left: Duration) -> Vec<Duration> {
        let soon = millis(rng, 1, 3);
        let late = millis(rng, 100, 5_000).min(left).max(soon);
        let first = if percent(rng, self.lossy.late) { late } else { soon };
        let mut times = if percent(rng, self.lossy.lost) { Vec::new() } else { vec![first] };
        if percent(rng, self.lossy.doubled) {
            times.push(millis(rng, 1, 5_000).min(left).max(soon));
        }
        times
    }
}
